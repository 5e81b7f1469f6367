//! Ids that Sluice gives. They are derived from what they name, so that a step run twice names the
//! same thing.

use crate::text::text;
use sha2::{Digest, Sha256};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        text! {
            $(#[$doc])*
            $name
        }

        impl $name {
            /// Returns the id that these parts always have: 32 hexadecimal digits.
            pub fn derive(parts: &[&str]) -> Self {
                Self(digest(parts))
            }
        }
    };
}

id!(
    /// A webhook delivery: the connection and the forge's own delivery id, so a repeat is
    /// recognised.
    DeliveryId
);
id!(
    /// A queue item: one change (or ref) in one pipeline, from its admission to its report.
    ItemId
);
id!(
    /// A build: one attempt to run one job for one item. Zuul's form: 32 hexadecimal digits.
    BuildId
);
id!(
    /// A node of the pool.
    NodeId
);
id!(
    /// One life of an executor.
    SessionId
);
id!(
    /// Something that reached a queue cell and waits there to be decided on.
    ArrivalId
);

/// Returns 32 hexadecimal digits of SHA-256 over the parts, each with its length, so that `ab`,`c`
/// and `a`,`bc` differ.
pub fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hex::encode(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::BuildId;

    /// Z7.3
    #[test]
    fn an_id_is_the_same_each_time_and_keeps_its_parts_apart() {
        assert_eq!(BuildId::derive(&["item", "job", "1"]), BuildId::derive(&["item", "job", "1"]));
        assert_ne!(BuildId::derive(&["ab", "c"]), BuildId::derive(&["a", "bc"]));
        assert_eq!(BuildId::derive(&[]).as_str().len(), 32);
    }
}
