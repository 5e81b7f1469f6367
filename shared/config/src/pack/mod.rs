//! Encodes layouts for storage in a format that is small, fast, and readable piece by piece.
//!
//! Every value starts with a byte that gives its type, so that values of any shape (variables,
//! unparsed attributes) can be decoded. A struct stores only the fields that are not `None`, because
//! most of the fifty attributes of a job are not set. The names of fields and variants are stored
//! once, in a table next to the values. So added and removed fields are handled as in JSON.

mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::Packer;

use std::fmt;

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UNSIGNED: u8 = 3;
/// A negative number; its complement follows.
const NEGATIVE: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const BYTES: u8 = 7;
const LIST: u8 = 8;
const MAP: u8 = 9;
/// Followed by the fields, each with the index of its name in the table, from 1; 0 ends them.
const STRUCT: u8 = 10;
const VARIANT: u8 = 11;
/// Precedes a `Some` whose value would be read as `None`.
const SOME: u8 = 12;
/// The first of [`SMALL`] bytes that each encode a number below [`SMALL`].
const SMALL_NUMBER: u8 = 0x40;
/// The first of [`SMALL`] bytes that each start a text with a length below [`SMALL`].
const SMALL_TEXT: u8 = 0x80;
const SMALL: u8 = 0x40;

/// The reason why a value cannot be packed or unpacked, as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackError(String);

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PackError {}

impl serde::ser::Error for PackError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for PackError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Everything {
        name: String,
        none: Option<u32>,
        some: Option<Option<u8>>,
        flag: bool,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<u8>,
        numbers: (u64, i64, f64),
        kind: Kind,
        kinds: Vec<Kind>,
        map: BTreeMap<String, Value>,
        last: Option<Box<Everything>>,
    }

    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    enum Kind {
        #[default]
        Plain,
        One(String),
        Two(u8, Option<bool>),
        Fields {
            a: Option<u8>,
            b: u8,
        },
    }

    fn to_vec<T: Serialize>(value: &T) -> (Vec<u8>, Vec<&'static str>) {
        let mut packer = Packer::default();
        packer.pack(value).unwrap();
        packer.finish()
    }

    fn everything() -> Everything {
        Everything {
            name: "x".repeat(100),
            some: Some(None),
            numbers: (u64::MAX, i64::MIN, -0.5),
            kind: Kind::One("é".to_owned()),
            kinds: vec![
                Kind::Plain,
                Kind::Two(64, None),
                Kind::Two(63, Some(true)),
                Kind::Fields { a: None, b: 1 },
            ],
            map: BTreeMap::from([
                (
                    "a".to_owned(),
                    json!({"x": null, "y": [1, -1, 1.5, "t", true, {}], "z": 18_446_744_073_709_551_615_u64}),
                ),
                ("b".to_owned(), Value::Null),
            ]),
            last: Some(Box::default()),
            ..Everything::default()
        }
    }

    #[test]
    fn everything_comes_back_as_it_was() {
        let (packed, names) = to_vec(&everything());
        assert_eq!(read::<Everything>(&packed, &names).unwrap(), everything());
    }

    #[test]
    fn what_is_not_set_takes_no_room() {
        assert!(to_vec(&Everything::default()).0.len() < 40);
    }

    /// A layout can be read by another version of the program than the one that stored it.
    #[test]
    fn fields_that_come_and_go_are_met_by_name() {
        #[derive(Serialize)]
        struct Older {
            gone: Kind,
            kept: String,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Newer {
            kept: String,
            new: Option<u8>,
        }
        let (packed, names) =
            to_vec(&Older { gone: Kind::Fields { a: Some(1), b: 2 }, kept: "yes".to_owned() });
        assert_eq!(
            read::<Newer>(&packed, &names).unwrap(),
            Newer { kept: "yes".to_owned(), new: None }
        );
    }

    /// Truncated or damaged bytes are refused without any other effect.
    #[test]
    fn damaged_bytes_are_refused_or_read_as_something_else() {
        let (packed, names) = to_vec(&everything());
        for end in 0..packed.len() {
            assert!(read::<Everything>(&packed[..end], &names).is_err(), "cut at {end}");
        }
        for place in 0..packed.len() {
            for byte in [0, 5, 8, 9, 10, 0x7f, 0xff] {
                let mut damaged = packed.clone();
                damaged[place] = byte;
                let _ = read::<Everything>(&damaged, &names);
            }
        }
        assert!(
            read::<Value>(&[LIST, 0xff, 0xff, 0xff, 0xff, 0x0f], &names).is_err(),
            "a length that nothing follows"
        );
        let nested = [[LIST, 1]; 100_000].concat();
        assert!(read::<Value>(&nested, &names).is_err(), "nesting without end");
    }
}
