//! Ids that Sluice assigns. Each is derived from the thing it identifies, so a repeated step yields
//! the same id.

use crate::text::text;
use sha2::{Digest, Sha256};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        text! {
            $(#[$doc])*
            $name
        }

        impl $name {
            /// Returns the id derived from `parts`: always the same 32 hexadecimal digits.
            pub fn derive(parts: &[&str]) -> Self {
                Self(digest(parts))
            }
        }
    };
}

id!(
    /// A webhook delivery. Derived from the connection and the forge's delivery id, so a redelivery
    /// is recognised.
    DeliveryId
);
id!(
    /// A queue item: one change (or ref) in one pipeline, from its enqueueing to its report.
    ItemId
);
id!(
    /// A build: one attempt to run one job for one item. As in Zuul, it has 32 hexadecimal digits.
    BuildId
);
id!(
    /// A node of the pool.
    NodeId
);
id!(
    /// One run of an executor process.
    SessionId
);
id!(
    /// A message in a queue cell's inbox.
    InboxMessageId
);

/// Returns 32 hexadecimal digits of SHA-256 over the parts. Each part is hashed with its length, so
/// that `ab`,`c` and `a`,`bc` differ.
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
