//! The names of a repository's objects in object storage:
//! `git/<escaped canonical project>/pack-<sha>.joined` for a pack with its index, and
//! `kept/<commit>..<commit>` for what a tested commit adds to the one below.
//!
//! Earlier versions stored a pack as two objects, `pack-<sha>.pack` and `.idx`, and listed the
//! former: such packs are still read.

use crate::pack::PackName;
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use std::fmt::Write as _;

/// How the key of a pack with its index ends.
const JOINED: &str = ".joined";
/// How the key of a pack ended whose index is another object.
const ALONE: &str = ".pack";

/// Returns the prefix of all of a project's packs, ending in `/`.
///
/// Every byte of the canonical name but letters, digits, `-`, `_` and inner `.` is percent-encoded,
/// so that no name reaches into another's prefix.
pub fn prefix(project: &ProjectName) -> String {
    format!("git/{}/", escape(project.as_str()))
}

/// Returns the key of a pack with its index ([`crate::NewPack::joined`]).
pub fn pack(project: &ProjectName, name: &PackName) -> String {
    format!("{}{name}{JOINED}", prefix(project))
}

/// Returns the key of the index that lies beside a pack of an earlier version; `None` where pack
/// and index are one object.
pub fn index_beside(key: &str) -> Option<String> {
    key.strip_suffix(ALONE).map(|stem| format!("{stem}.idx"))
}

/// Returns the key of what a tested commit adds to the commit that it was put on ([`crate::Kept`]).
/// That it is there says that a branch moves forward from the one to the other.
pub fn kept(project: &ProjectName, from: &Oid, to: &Oid) -> String {
    format!("{}kept/{}..{}", prefix(project), escape(from.as_str()), escape(to.as_str()))
}

/// Returns the pack that a key in a list of packs names, in either form; `None` for any other key.
pub fn pack_of(key: &str) -> Option<PackName> {
    let file = key.strip_prefix("git/")?.rsplit('/').next()?;
    let stem = file.strip_suffix(JOINED).or_else(|| file.strip_suffix(ALONE))?;
    stem.parse().ok()
}

/// Escapes a canonical project name to one path segment; also good for a directory of a cache.
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
    fn a_key_names_project_and_pack_and_gives_the_pack_back() {
        let project = ProjectName::from("forge.example/org/name.git");
        let name: PackName = format!("pack-{}", "a1".repeat(20)).parse().unwrap();
        let key = pack(&project, &name);
        assert_eq!(
            key,
            format!("git/forge.example%2Forg%2Fname.git/pack-{}.joined", "a1".repeat(20))
        );
        assert_eq!(pack_of(&key), Some(name));
        assert_eq!(index_beside(&key), None);
    }

    /// Records name packs so that were stored before pack and index became one object.
    #[test]
    fn a_key_of_an_earlier_version_names_its_pack_and_the_index_beside_it() {
        let stem = format!("git/forge.example%2Forg%2Fname/pack-{}", "a1".repeat(20));
        let key = format!("{stem}.pack");
        assert_eq!(
            pack_of(&key).map(|name| name.to_string()),
            Some(format!("pack-{}", "a1".repeat(20)))
        );
        assert_eq!(index_beside(&key), Some(format!("{stem}.idx")));
    }

    #[test]
    fn what_is_no_key_of_a_pack_names_none() {
        let name = format!("pack-{}", "a1".repeat(20));
        let others = [
            "git/x/pack-short.pack".to_owned(),
            "git/x/pack-short.joined".to_owned(),
            format!("git/x/{name}.idx"),
            format!("git/x/{name}"),
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
    fn no_name_reaches_into_the_prefix_of_another() {
        assert_eq!(escape(".."), "%2E.");
        assert_eq!(escape("a/../b"), "a%2F..%2Fb");
        assert_ne!(escape("a%2Fb"), escape("a/b"));
    }
}
