//! Objects in object storage: bytes under a key, with the entity tag for conditional writes.

use bytes::Bytes;

/// An object with its entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The content.
    pub bytes: Bytes,
    /// The entity tag, which changes with each write.
    pub etag: String,
}

/// A range of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPart {
    /// The bytes; fewer than requested at the end of the object.
    pub bytes: Bytes,
    /// The length of the whole object.
    pub length: u64,
}

/// The condition of a write to object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutMode {
    /// No condition: the key is a hash of the content, or the last write wins.
    Always,
    /// There is no object with this key.
    IfAbsent,
    /// The object has this entity tag.
    IfMatch(String),
}

/// The outcome of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is stored.
    Yes,
    /// The condition did not hold; nothing was written.
    ConditionFailed,
}
