//! The known differences of the implementations. Each is asserted: the suite fails when one
//! disappears.

use sluice_conformance::Difference;

/// The ports in memory.
pub const MEMORY: &[Difference] = &[
    Difference {
        check: "a_sealed_text_shows_nothing",
        says: "the plain text is not in it",
        because: "the seal in memory binds a context and encrypts nothing; it never contains a real secret",
    },
    Difference {
        check: "what_was_changed_does_not_open",
        says: "it was not refused but gave",
        because: "the seal in memory only authenticates its context",
    },
    Difference {
        check: "any_text_can_be_a_group",
        says: "InvalidParameterValue",
        because: "the queues in memory refuse a group that SQS would refuse; the ports on AWS send a digest of it",
    },
];

/// The emulator.
pub const EMULATOR: &[Difference] = &[];

/// ministack 1.5.33.
pub const MINISTACK: &[Difference] = &[
    Difference {
        check: "acknowledging_twice_is_harmless_on_a_standard_queue",
        says: "ReceiptHandleIsInvalid",
        because: GONE,
    },
    Difference {
        check: "acknowledging_twice_is_harmless_on_a_fifo_queue",
        says: "ReceiptHandleIsInvalid",
        because: GONE,
    },
    Difference {
        check: "what_was_changed_does_not_open",
        says: "byte 0 changed: it was not refused",
        because: "its KMS does not authenticate the head of a ciphertext; never judge sealing by it",
    },
];

/// How ministack answers a second acknowledgement.
const GONE: &str = "it refuses the receipt of a message that is gone, which SQS accepts; a function that repeats its \
    acknowledgement sees an error, and the message does not come back";

/// versitygw 1.8.0, a gateway onto a POSIX file system.
pub const VERSITYGW: &[Difference] = &[Difference {
    check: "a_name_may_be_the_beginning_of_another",
    says: "ExistingObjectIsDirectory",
    because: "keys are paths of files there, and a file is no directory; Sluice must not name an object so on such a store",
}];
