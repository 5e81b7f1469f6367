//! The keys of a repository's objects in object storage: `git/<escaped canonical
//! project>/pack-<sha>.joined` for a pack with its index, and `deltas/<commit>..<commit>` for the
//! objects that a tested commit adds to the one below.

use crate::pack::PackName;
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use std::fmt::Write as _;

/// The ending of the key of a pack with its index.
const JOINED: &str = ".joined";

/// Returns the key prefix of a project's objects, ending in `/`: `git/` and the canonical name as
/// [`escape`] writes it, so that no name is part of another's prefix.
pub fn prefix(project: &ProjectName) -> String {
    format!("git/{}/", escape(project.as_str()))
}

/// Returns the key of a pack with its index ([`crate::NewPack::joined`]).
pub fn pack(project: &ProjectName, name: &PackName) -> String {
    format!("{}{name}{JOINED}", prefix(project))
}

/// Returns the key of what a tested commit adds to the commit it was put on
/// ([`crate::CommitDelta`]). The object exists only when `to` is a fast-forward of `from`.
pub fn commit_delta(project: &ProjectName, from: &Oid, to: &Oid) -> String {
    format!("{}deltas/{}..{}", prefix(project), escape(from.as_str()), escape(to.as_str()))
}

/// Parses the name of the pack from its key, of any project; `None` for any other key.
pub fn pack_of(key: &str) -> Option<PackName> {
    let file = key.strip_prefix("git/")?.rsplit('/').next()?;
    let stem = file.strip_suffix(JOINED)?;
    stem.parse().ok()
}

/// Escapes a canonical project name to one path segment, also for a directory name: every byte
/// except ASCII letters, digits, `-`, `_` and a `.` that is not the first becomes `%` and two
/// upper-case hexadecimal digits. Different names give different segments.
pub fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for (at, byte) in name.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
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
    fn the_pack_is_parsed_from_its_key() {
        let project = ProjectName::from("forge.example/org/name.git");
        let name: PackName = format!("pack-{}", "a1".repeat(20)).parse().unwrap();
        let key = pack(&project, &name);
        assert_eq!(
            key,
            format!("git/forge.example%2Forg%2Fname.git/pack-{}.joined", "a1".repeat(20))
        );
        assert_eq!(pack_of(&key), Some(name));
    }

    #[test]
    fn another_key_names_no_pack() {
        let name = format!("pack-{}", "a1".repeat(20));
        let others = [
            "git/x/pack-short.pack".to_owned(),
            "git/x/pack-short.joined".to_owned(),
            format!("git/x/{name}.idx"),
            format!("git/x/{name}"),
            format!("git/x/{name}.pack"),
            format!("git/x/{name}.joined.pack"),
            format!("git/x/{name}.joined/more"),
            format!("logs/{name}.pack"),
            format!("logs/{name}.joined"),
        ];
        for key in others {
            assert_eq!(pack_of(&key), None, "{key}");
        }
    }

    /// Z2.3
    #[test]
    fn no_prefix_is_part_of_another() {
        assert_eq!(escape(".."), "%2E.");
        assert_eq!(escape("a/../b"), "a%2F..%2Fb");
        assert_ne!(escape("a%2Fb"), escape("a/b"));
    }
}
