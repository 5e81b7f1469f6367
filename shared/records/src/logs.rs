//! What a build leaves behind (Z7.4): its log and the files beside it.
//!
//! A large file is an object of its own, `logs/<build>/<name>`. The small ones of a build lie
//! together in `logs/<build>.files`: a line of JSON,
//! `{"version":1,"files":[{"name":"job-output.txt","bytes":16},…]}`, its line feed, and then the
//! files' bytes in that order, with nothing between them. No id of a build has a dot, so no file's
//! own object has that key.
//!
//! Whoever reads a file looks for its own object first: that is all that earlier versions wrote,
//! and what is read in parts is one. A build is archived once and a lost one runs again under
//! another id, so a file never has both with different contents.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_model::BuildId;
use sluice_runtime::object::{Part, PutMode};
use sluice_runtime::{PortError, Ports};

/// The name of the log among the files of every build.
pub const LOG: &str = "job-output.txt";

/// The layout that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Returns the object of a file that has one of its own.
pub fn key(build: &BuildId, name: &str) -> String {
    format!("logs/{build}/{name}")
}

/// Returns the object in which a build's small files lie together.
pub fn packed_key(build: &BuildId) -> String {
    format!("logs/{build}.files")
}

/// The small files of one build by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    files: Vec<(String, Bytes)>,
}

/// The first line of the object.
#[derive(Serialize, Deserialize)]
struct Index {
    version: u32,
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: usize,
}

impl Packed {
    /// Adds a file.
    pub fn add(&mut self, name: String, content: Bytes) {
        self.files.push((name, content));
    }

    /// Returns whether there is no file at all.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files' names in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str())
    }

    /// Returns what is in the file of this name; of several the newest, as if each were an object.
    pub fn find(&self, name: &str) -> Option<&Bytes> {
        self.files.iter().rev().find(|(known, _)| known == name).map(|(_, content)| content)
    }

    fn encode(&self) -> Result<Bytes, serde_json::Error> {
        let entry =
            |(name, content): &(String, Bytes)| Entry { name: name.clone(), bytes: content.len() };
        let mut bytes = serde_json::to_vec(&Index {
            version: VERSION,
            files: self.files.iter().map(entry).collect(),
        })?;
        bytes.push(b'\n');
        self.files.iter().for_each(|(_, content)| bytes.extend_from_slice(content));
        Ok(bytes.into())
    }

    fn decode(bytes: &Bytes) -> Result<Self, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
        let index: Index =
            serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        if index.version != VERSION {
            return Err(format!(
                "it has layout {}, and layout {VERSION} is understood",
                index.version
            ));
        }
        let mut rest = bytes.slice(end + 1..);
        let mut packed = Self::default();
        for Entry { name, bytes } in index.files {
            if bytes > rest.len() {
                return Err(format!("it ends within {name}"));
            }
            packed.add(name, rest.split_to(bytes));
        }
        if !rest.is_empty() {
            return Err(format!("it has {} bytes that belong to no file", rest.len()));
        }
        Ok(packed)
    }
}

/// Stores a build's small files together.
///
/// # Errors
/// When the store does not answer.
pub async fn store_packed(
    ports: &Ports,
    build: &BuildId,
    packed: &Packed,
) -> Result<(), PortError> {
    let key = packed_key(build);
    let bytes =
        packed.encode().map_err(|error| PortError::unknown(format!("store {key}"), error))?;
    ports.objects.put(&key, bytes, PutMode::Always, "application/octet-stream").await.map(drop)
}

/// Returns the small files of a build that lie together; none where there is no such object.
///
/// # Errors
/// When the store does not answer, or holds what was never stored there.
pub async fn packed(ports: &Ports, build: &BuildId) -> Result<Packed, PortError> {
    let key = packed_key(build);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(Packed::default()) };
    Packed::decode(&object.bytes).map_err(|why| PortError::unknown(format!("read {key}"), why))
}

/// Returns a whole file of a build, wherever it lies; `None` when there is none of this name.
///
/// # Errors
/// As [`packed`].
pub async fn whole(ports: &Ports, build: &BuildId, name: &str) -> Result<Option<Bytes>, PortError> {
    if let Some(object) = ports.objects.get(&key(build, name)).await? {
        return Ok(Some(object.bytes));
    }
    let packed = packed(ports, build).await?;
    Ok(packed.find(name).cloned())
}

/// Returns at most `most` bytes of a file of a build from byte `first` on, wherever it lies; `None`
/// when there is none of this name.
///
/// # Errors
/// As [`packed`].
pub async fn part(
    ports: &Ports,
    build: &BuildId,
    name: &str,
    first: u64,
    most: usize,
) -> Result<Option<Part>, PortError> {
    if let Some(part) = ports.objects.get_part(&key(build, name), first, most).await? {
        return Ok(Some(part));
    }
    let packed = packed(ports, build).await?;
    Ok(packed.find(name).map(|content| cut(content, first, most)))
}

/// Returns at most `most` bytes of a file that was read whole, from byte `first` on.
pub fn cut(content: &Bytes, first: u64, most: usize) -> Part {
    let from = usize::try_from(first).unwrap_or(usize::MAX).min(content.len());
    let to = from.saturating_add(most).min(content.len());
    Part { bytes: content.slice(from..to), length: content.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Packed {
        let mut packed = Packed::default();
        packed.add(LOG.to_owned(), Bytes::from_static(b"one\ntwo\n"));
        packed.add("empty".to_owned(), Bytes::new());
        packed.add("odd \"\n/\u{e4}.bin".to_owned(), Bytes::from_static(b"\n\0\xff{"));
        packed
    }

    /// Z7.4: what is in the files and in their names does not matter.
    #[test]
    fn what_is_stored_together_is_read_as_it_was() {
        let bytes = some().encode().unwrap();
        assert_eq!(Packed::decode(&bytes), Ok(some()));
        let head = br#"{"version":1,"files":[{"name":"job-output.txt","bytes":8},{"name":"empty","bytes":0},"#;
        assert!(bytes.starts_with(head), "{bytes:?}");
        assert_eq!(Packed::decode(&Packed::default().encode().unwrap()), Ok(Packed::default()));
    }

    /// Z7.4
    #[test]
    fn an_object_that_was_never_stored_so_is_told_and_not_guessed_at() {
        let whole = some().encode().unwrap();
        let longer = Bytes::from([&whole[..], b"x"].concat());
        let newer = Bytes::from_static(b"{\"version\":2,\"files\":[]}\n");
        for (bytes, why) in [
            (Bytes::new(), "no first line"),
            (Bytes::from_static(b"{}\n"), "version"),
            (newer, "layout 2"),
            (whole.slice(..whole.len() - 1), "ends within"),
            (longer, "1 bytes that belong to no file"),
        ] {
            let told = Packed::decode(&bytes).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    /// Z7.4
    #[test]
    fn a_part_ends_where_its_file_ends() {
        let content = Bytes::from_static(b"0123456789");
        let read = |first, most| cut(&content, first, most).bytes;
        assert_eq!(
            (read(2, 3), read(8, usize::MAX)),
            (Bytes::from_static(b"234"), Bytes::from_static(b"89"))
        );
        assert_eq!((read(10, 1), read(u64::MAX, 1)), (Bytes::new(), Bytes::new()));
        assert_eq!(cut(&content, 99, 1).length, 10);
    }
}
