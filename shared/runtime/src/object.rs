//! What lies in object storage: bytes under a key, with the entity tag that conditional writes
//! name.

use bytes::Bytes;

/// An object with its entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The content.
    pub bytes: Bytes,
    /// Changes with each write.
    pub etag: String,
}

/// Some bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes; fewer than were asked for where the object ends.
    pub bytes: Bytes,
    /// How many the whole object has.
    pub length: u64,
}

/// What must hold for an object to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutMode {
    /// Nothing: content is named by its hash, or the last writer wins.
    Always,
    /// There is no such object.
    IfAbsent,
    /// The object has this entity tag.
    IfMatch(String),
}

/// How a conditional put ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is stored.
    Yes,
    /// The condition did not hold; nothing was written.
    Lost,
}
