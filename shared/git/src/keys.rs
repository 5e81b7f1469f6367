//! The names of a repository's objects in object storage: `git/<escaped canonical project>/pack-<sha>.pack` and `.idx`, and
//! `kept/<commit>..<commit>` for what a tested commit adds to the one below.

use crate::pack::PackName;
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use std::fmt::Write as _;

/// Returns the prefix of all of a project's packs, ending in `/`.
///
/// Every byte of the canonical name but letters, digits, `-`, `_` and inner `.` is percent-encoded, so that no name reaches into another's
/// prefix.
pub fn prefix(project: &ProjectName) -> String {
    format!("git/{}/", escape(project.as_str()))
}

/// Returns the key of a pack.
pub fn pack(project: &ProjectName, name: &PackName) -> String {
    format!("{}{name}.pack", prefix(project))
}

/// Returns the key of the index that belongs to a pack.
pub fn index(project: &ProjectName, name: &PackName) -> String {
    format!("{}{name}.idx", prefix(project))
}

/// Returns the key of what a tested commit adds to the commit that it was put on ([`crate::Kept`]). That it is there says that a
/// branch moves forward from the one to the other.
pub fn kept(project: &ProjectName, from: &Oid, to: &Oid) -> String {
    format!("{}kept/{}..{}", prefix(project), escape(from.as_str()), escape(to.as_str()))
}

/// Returns the pack that a key names, of a pack or of its index; `None` for any other key.
pub fn pack_of(key: &str) -> Option<PackName> {
    let file = key.strip_prefix("git/")?.rsplit('/').next()?;
    let stem = file.strip_suffix(".pack").or_else(|| file.strip_suffix(".idx"))?;
    stem.parse().ok()
}

/// Escapes a canonical project name to one path segment; also good for a directory of a cache.
pub fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for (at, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        if plain {
            out.push(byte as char);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_project_and_pack_and_gives_the_pack_back() {
        let project = ProjectName::from("forge.example/org/name.git");
        let name: PackName = format!("pack-{}", "a1".repeat(20)).parse().unwrap();
        let key = pack(&project, &name);
        assert_eq!(key, format!("git/forge.example%2Forg%2Fname.git/pack-{}.pack", "a1".repeat(20)));
        assert_eq!(pack_of(&key), Some(name.clone()));
        assert_eq!(pack_of(&index(&project, &name)), Some(name));
        assert_eq!(pack_of("git/x/pack-short.pack"), None);
        assert_eq!(pack_of("logs/pack-a.pack"), None);
    }

    /// Z2.3
    #[test]
    fn no_name_reaches_into_the_prefix_of_another() {
        assert_eq!(escape(".."), "%2E.");
        assert_eq!(escape("a/../b"), "a%2F..%2Fb");
        assert_ne!(escape("a%2Fb"), escape("a/b"));
    }
}
