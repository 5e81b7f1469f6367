//! The MD5 sums that SQS answers with, which SDKs compare with what they sent.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use sluice_memory::sqs::Attribute;

/// Returns the MD5 of a body in hexadecimal.
pub(super) fn body(text: &str) -> String {
    hex::encode(Md5::digest(text.as_bytes()))
}

/// Returns the MD5 of a message's attributes as SQS computes it; `None` if there are none.
///
/// In order of names it hashes each name, type and value after its length, and before the value a
/// byte for its kind (1 text, 2 binary).
pub(super) fn attributes(attributes: &BTreeMap<String, Attribute>) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut signed = Vec::new();
    let mut add = |bytes: &[u8], transport: Option<u8>| {
        // The transport stands alone, without a length before it.
        signed.extend(transport);
        signed.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        signed.extend_from_slice(bytes);
    };
    for (name, attribute) in attributes {
        add(name.as_bytes(), None);
        add(attribute.data_type.as_bytes(), None);
        add(&attribute.value, Some(if attribute.data_type.starts_with("Binary") { 2 } else { 1 }));
    }
    Some(hex::encode(Md5::digest(&signed)))
}
