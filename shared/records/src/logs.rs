//! The files that a build leaves behind (Z7.4): its log and the files archived with it.
//!
//! Each belongs to the tenant of its build: the tenant is part of its key, so no path of one tenant
//! leads to the logs of another (Z2.3).
//!
//! A large file is an object of its own, `logs/<tenant>/<build>/<name>`. The small files of a build
//! are packed into `logs/<tenant>/<build>.files`: one line of JSON,
//! `{"version":1,"files":[{"name":"job-output.txt","bytes":16},…]}`, its line feed, and then the
//! files' bytes in that order, with nothing between them. No build id contains a dot, so no file's
//! own object has that key.
//!
//! The log of a build that writes for longer than a few seconds is stored while it grows, in
//! segments: `logs/<tenant>/<build>.log/<number>`, of [`SEGMENT_BYTES`] each, the last one shorter.
//! Only the last one is written again, with more bytes. So a build whose executor dies keeps its
//! log, and the log of a build that ends is not stored a second time.
//!
//! A reader looks for the file's own object first, because large files are read in parts, then
//! among the packed files, and for the log at last for its segments. A build is archived once, and
//! a build that was lost runs again under another id. So a file never has two objects with
//! different contents, except that a log without segments may have been cut at its last one.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{BuildId, TenantName};
use sluice_runtime::object::{ObjectPart, PutMode};
use sluice_runtime::{PortError, Ports};

/// The name of the log, which every build has.
pub const LOG: &str = "job-output.txt";

/// The size of each segment of a log but the last, in bytes. A log of 256 MiB has 512 segments.
pub const SEGMENT_BYTES: usize = 512 << 10;

/// The most segments that a log may have; further ones are not read.
const SEGMENTS_MAX: usize = 1_000;

/// The version of the format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Names the logs of one build, which need not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildLogs<'a> {
    /// The tenant of the build.
    pub tenant: &'a TenantName,
    /// The build.
    pub build: &'a BuildId,
}

impl BuildLogs<'_> {
    /// Returns what the keys of all files that are not packed begin with; it ends in `/`.
    pub fn folder(&self) -> String {
        format!("logs/{}/{}/", escape(self.tenant.as_str()), self.build)
    }

    /// Returns the key of the object with a file that is not packed.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.folder())
    }

    /// Returns the key of the object with the packed small files.
    pub fn packed_key(&self) -> String {
        format!("logs/{}/{}.files", escape(self.tenant.as_str()), self.build)
    }

    /// Returns the key of a segment of the log, by its number from 0.
    pub fn segment_key(&self, number: usize) -> String {
        format!("{}{number:05}", self.segment_folder())
    }

    /// Returns what the keys of all segments of the log begin with; it ends in `/`.
    fn segment_folder(&self) -> String {
        format!("logs/{}/{}.log/", escape(self.tenant.as_str()), self.build)
    }

    /// Returns the address of the logs below `root`, the address of all logs, which ends in `/`.
    /// So does the result. The tenant's name is percent-encoded.
    pub fn address(&self, root: &str) -> String {
        let mut tenant = String::new();
        for byte in self.tenant.as_str().bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
                tenant.push(char::from(byte));
            } else {
                tenant.push_str(&format!("%{byte:02X}"));
            }
        }
        format!("{root}{tenant}/{}/", self.build)
    }

    /// Stores the small files as one object, in place of an earlier one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn store_packed(&self, ports: &Ports, packed: &PackedLogs) -> Result<(), PortError> {
        let key = self.packed_key();
        let bytes =
            packed.encode().map_err(|error| PortError::unknown(format!("store {key}"), error))?;
        ports.objects.put(&key, bytes, PutMode::Always, "application/octet-stream").await.map(drop)
    }

    /// Reads the packed small files; empty when there is no such object. An object that cannot be
    /// decoded is an error.
    ///
    /// # Errors
    /// When the store does not answer, or the object cannot be decoded.
    pub async fn load_packed(&self, ports: &Ports) -> Result<PackedLogs, PortError> {
        let key = self.packed_key();
        let Some(object) = ports.objects.get(&key).await? else {
            return Ok(PackedLogs::default());
        };
        PackedLogs::decode(&object.bytes)
            .map_err(|why| PortError::unknown(format!("read {key}"), why))
    }

    /// Reads a whole file: its own object, or else from the packed files, or of the log the
    /// segments; `None` when there is no file of this name.
    ///
    /// # Errors
    /// As [`Self::load_packed`].
    pub async fn read_file(&self, ports: &Ports, name: &str) -> Result<Option<Bytes>, PortError> {
        if let Some(object) = ports.objects.get(&self.key(name)).await? {
            return Ok(Some(object.bytes));
        }
        let packed = self.load_packed(ports).await?;
        match packed.find(name) {
            Some(content) => Ok(Some(content.clone())),
            None if name == LOG => {
                let log = self.read_log_segments(ports, 0, usize::MAX).await?;
                Ok(log.map(|part| part.bytes))
            }
            None => Ok(None),
        }
    }

    /// Returns whether any segment of the log is stored.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn has_log_segments(&self, ports: &Ports) -> Result<bool, PortError> {
        Ok(!ports.objects.list(&self.segment_folder(), None, 1).await?.is_empty())
    }

    /// Returns the length in bytes of the log that is stored in segments; `None` without segments.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn segmented_log_length(&self, ports: &Ports) -> Result<Option<u64>, PortError> {
        let keys = ports.objects.list(&self.segment_folder(), None, SEGMENTS_MAX).await?;
        let Some(last) = keys.len().checked_sub(1) else { return Ok(None) };
        // All segments before the last one are full.
        let part = ports.objects.get_part(&self.segment_key(last), 0, 1).await?;
        let length = part.map_or(0, |part| part.length);
        Ok(Some(last as u64 * SEGMENT_BYTES as u64 + length))
    }

    /// Reads at most `most` bytes of the log from its segments, from byte `first` on; `None`
    /// without segments. The result is empty beyond the end, and has the length of the whole log.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn read_log_segments(
        &self,
        ports: &Ports,
        first: u64,
        most: usize,
    ) -> Result<Option<ObjectPart>, PortError> {
        let Some(length) = self.segmented_log_length(ports).await? else { return Ok(None) };
        let end = first.saturating_add(most as u64).min(length);
        let (mut at, mut bytes) = (first, Vec::new());
        while at < end {
            let number = usize::try_from(at / SEGMENT_BYTES as u64).unwrap_or(SEGMENTS_MAX);
            let from = at % SEGMENT_BYTES as u64;
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(SEGMENT_BYTES);
            let segment = ports.objects.get_part(&self.segment_key(number), from, wanted).await?;
            let segment = segment.map(|part| part.bytes).unwrap_or_default();
            if segment.is_empty() {
                break;
            }
            at += segment.len() as u64;
            bytes.extend_from_slice(&segment);
        }
        // The last segment may have grown since the length was read.
        bytes.truncate(usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX));
        Ok(Some(ObjectPart { bytes: bytes.into(), length }))
    }

    /// Reads at most `most` bytes of a file from byte `first` on, as [`Self::read_file`] finds it;
    /// `None` when there is no file of this name. The result is empty beyond the file's end, and
    /// has the length of the whole file.
    ///
    /// # Errors
    /// As [`Self::load_packed`].
    pub async fn read_file_part(
        &self,
        ports: &Ports,
        name: &str,
        first: u64,
        most: usize,
    ) -> Result<Option<ObjectPart>, PortError> {
        if let Some(part) = ports.objects.get_part(&self.key(name), first, most).await? {
            return Ok(Some(part));
        }
        let packed = self.load_packed(ports).await?;
        match packed.find(name) {
            Some(content) => Ok(Some(slice_of(content, first, most))),
            None if name == LOG => self.read_log_segments(ports, first, most).await,
            None => Ok(None),
        }
    }
}

/// The small files of one build, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedLogs {
    /// The names and contents of the files.
    files: Vec<(String, Bytes)>,
}

/// The first line of the packed object.
#[derive(Serialize, Deserialize)]
struct PackIndex {
    /// The version of the format.
    version: u32,
    /// The files in the order of their contents.
    files: Vec<PackedFile>,
}

#[derive(Serialize, Deserialize)]
struct PackedFile {
    /// The file's name.
    name: String,
    /// The length of its content.
    bytes: usize,
}

impl PackedLogs {
    /// Adds a file at the end.
    pub fn add(&mut self, name: String, content: Bytes) {
        self.files.push((name, content));
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files' names in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the content of the file of this name, `None` when there is none. Of several with one
    /// name, returns the last one added.
    pub fn find(&self, name: &str) -> Option<&Bytes> {
        self.files.iter().rev().find(|(added, _)| added == name).map(|(_, content)| content)
    }

    /// Encodes the files as one object: a line of JSON with names and lengths, then the contents,
    /// both in the order in which they were added.
    fn encode(&self) -> Result<Bytes, serde_json::Error> {
        let entry = |(name, content): &(String, Bytes)| PackedFile {
            name: name.clone(),
            bytes: content.len(),
        };
        let mut bytes = serde_json::to_vec(&PackIndex {
            version: VERSION,
            files: self.files.iter().map(entry).collect(),
        })?;
        bytes.push(b'\n');
        self.files.iter().for_each(|(_, content)| bytes.extend_from_slice(content));
        Ok(bytes.into())
    }

    /// Decodes an object of packed files. An error if its list of files is missing or unreadable,
    /// has another version or names more bytes than there are, or if bytes belong to no file.
    fn decode(bytes: &Bytes) -> Result<Self, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
        let index: PackIndex =
            serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        if index.version != VERSION {
            return Err(format!(
                "its format version is {}; only version {VERSION} is supported",
                index.version
            ));
        }
        let mut rest = bytes.slice(end + 1..);
        let mut packed = Self::default();
        for PackedFile { name, bytes } in index.files {
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

/// Returns at most `most` bytes of `content` from byte `first` on, empty beyond its end, with the
/// length of all of `content`.
pub fn slice_of(content: &Bytes, first: u64, most: usize) -> ObjectPart {
    let from = usize::try_from(first).unwrap_or(usize::MAX).min(content.len());
    let to = from.saturating_add(most).min(content.len());
    ObjectPart { bytes: content.slice(from..to), length: content.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> PackedLogs {
        let mut packed = PackedLogs::default();
        packed.add(LOG.to_owned(), Bytes::from_static(b"one\ntwo\n"));
        packed.add("empty".to_owned(), Bytes::new());
        packed.add("odd \"\n/\u{e4}.bin".to_owned(), Bytes::from_static(b"\n\0\xff{"));
        packed
    }

    /// Z7.4, Z2.3: no two tenants share a key, and the address of a tenant is one part of a path.
    #[test]
    fn the_keys_and_the_address_of_logs_begin_with_the_tenant() {
        let (tenant, build) = (TenantName::from("a/b c"), BuildId::from("1"));
        let logs = BuildLogs { tenant: &tenant, build: &build };
        assert_eq!(logs.key("docs/x"), "logs/a%2fb c/1/docs/x");
        assert_eq!(logs.packed_key(), "logs/a%2fb c/1.files");
        assert_eq!(logs.address("https://ci.test/logs/"), "https://ci.test/logs/a%2Fb%20c/1/");
    }

    /// Z7.4: the contents and names of files do not matter.
    #[test]
    fn packed_files_are_decoded_as_they_were_encoded() {
        let bytes = some().encode().unwrap();
        assert_eq!(PackedLogs::decode(&bytes), Ok(some()));
        let head = br#"{"version":1,"files":[{"name":"job-output.txt","bytes":8},{"name":"empty","bytes":0},"#;
        assert!(bytes.starts_with(head), "{bytes:?}");
        assert_eq!(
            PackedLogs::decode(&PackedLogs::default().encode().unwrap()),
            Ok(PackedLogs::default())
        );
    }

    /// Z7.4
    #[test]
    fn a_malformed_object_is_an_error() {
        let whole = some().encode().unwrap();
        let longer = Bytes::from([&whole[..], b"x"].concat());
        let newer = Bytes::from_static(b"{\"version\":2,\"files\":[]}\n");
        for (bytes, why) in [
            (Bytes::new(), "no first line"),
            (Bytes::from_static(b"{}\n"), "version"),
            (newer, "version is 2"),
            (whole.slice(..whole.len() - 1), "ends within"),
            (longer, "1 bytes that belong to no file"),
        ] {
            let error = PackedLogs::decode(&bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// Z7.4
    #[test]
    fn a_part_ends_where_its_file_ends() {
        let content = Bytes::from_static(b"0123456789");
        let read = |first, most| slice_of(&content, first, most).bytes;
        assert_eq!(
            (read(2, 3), read(8, usize::MAX)),
            (Bytes::from_static(b"234"), Bytes::from_static(b"89"))
        );
        assert_eq!((read(10, 1), read(u64::MAX, 1)), (Bytes::new(), Bytes::new()));
        assert_eq!(slice_of(&content, 99, 1).length, 10);
    }
}
