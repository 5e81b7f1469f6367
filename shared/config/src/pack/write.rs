//! Encodes values.

use super::{
    BYTES, FALSE, FLOAT, LIST, MAP, NEGATIVE, NONE, PackError, SMALL, SMALL_NUMBER, SMALL_TEXT,
    SOME, STRUCT, TEXT, TRUE, UNSIGNED, VARIANT,
};
use serde::ser::{self, Serialize};
use std::collections::HashMap;

/// Encodes values into one buffer with a shared table of names.
#[derive(Default)]
pub(crate) struct Packer(Writer);

impl Packer {
    /// Appends an encoded value to the buffer, and new names to the table. Returns the length of
    /// the value in bytes, which the caller must keep to find the value again. An error for a list
    /// or map of unknown length; the buffer then has a part of the value.
    pub(crate) fn pack<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<usize, PackError> {
        let before = self.0.out.len();
        value.serialize(&mut self.0)?;
        Ok(self.0.out.len() - before)
    }

    /// Returns the bytes of all values, and the table of names, to which the bytes refer.
    pub(crate) fn finish(self) -> (Vec<u8>, Vec<&'static str>) {
        (self.0.out, self.0.names)
    }
}

#[derive(Default)]
struct Writer {
    out: Vec<u8>,
    /// The position of the latest `None`.
    none_at: Option<usize>,
    names: Vec<&'static str>,
    places: HashMap<&'static str, usize>,
}

impl Writer {
    /// Appends a number in as few bytes as it needs.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    /// Appends the number of values that follow.
    fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    /// Appends the index of a name in the table, from 1. Adds a new name to the table.
    fn name(&mut self, name: &'static str) {
        let place = *self.places.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.names.len()
        });
        self.length(place);
    }

    /// Appends the mark that an enum's variant with this name follows.
    fn variant(&mut self, name: &'static str) {
        self.out.push(VARIANT);
        self.name(name);
    }

    /// Returns the length of a list or map; an error if it is `None`, because serde does not know
    /// it in advance.
    fn known_length(length: Option<usize>) -> Result<usize, PackError> {
        length.ok_or_else(|| PackError("a list of unknown length cannot be stored".to_owned()))
    }
}

impl<'w> ser::Serializer for &'w mut Writer {
    type Ok = ();
    type Error = PackError;
    type SerializeSeq = &'w mut Writer;
    type SerializeTuple = &'w mut Writer;
    type SerializeTupleStruct = &'w mut Writer;
    type SerializeTupleVariant = &'w mut Writer;
    type SerializeMap = &'w mut Writer;
    type SerializeStruct = Fields<'w>;
    type SerializeStructVariant = Fields<'w>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Result<(), PackError> {
        self.out.push(if value { TRUE } else { FALSE });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    /// Writes the number in as few bytes as it needs, with a type of its own if it is negative.
    fn serialize_i64(self, value: i64) -> Result<(), PackError> {
        match u64::try_from(value) {
            Ok(value) => self.serialize_u64(value),
            Err(_) => {
                self.out.push(NEGATIVE);
                self.number(!value as u64);
                Ok(())
            }
        }
    }

    fn serialize_u8(self, value: u8) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    /// Writes the number: in one byte if it is small, otherwise its type and as few bytes as it
    /// needs.
    fn serialize_u64(self, value: u64) -> Result<(), PackError> {
        if value < u64::from(SMALL) {
            self.out.push(SMALL_NUMBER + value as u8);
        } else {
            self.out.push(UNSIGNED);
            self.number(value);
        }
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), PackError> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), PackError> {
        self.out.push(FLOAT);
        self.out.extend(value.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), PackError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    /// Writes the length and the text. The length of a short text is in the byte of its type.
    fn serialize_str(self, value: &str) -> Result<(), PackError> {
        if value.len() < usize::from(SMALL) {
            self.out.push(SMALL_TEXT + value.len() as u8);
        } else {
            self.out.push(TEXT);
            self.length(value.len());
        }
        self.out.extend(value.as_bytes());
        Ok(())
    }

    /// Writes the type, the length and the bytes.
    fn serialize_bytes(self, value: &[u8]) -> Result<(), PackError> {
        self.out.push(BYTES);
        self.length(value.len());
        self.out.extend(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), PackError> {
        self.none_at = Some(self.out.len());
        self.out.push(NONE);
        Ok(())
    }

    /// Writes the value, after a mark if it would otherwise be read as `None`.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), PackError> {
        let start = self.out.len();
        value.serialize(&mut *self)?;
        if matches!(self.out.get(start), Some(&(NONE | SOME))) {
            self.out.insert(start, SOME);
            self.none_at = None;
        }
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), PackError> {
        self.out.push(NONE);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), PackError> {
        self.serialize_unit()
    }

    /// Writes the variant's name, then the mark of a missing value.
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<(), PackError> {
        self.variant(name);
        self.serialize_unit()
    }

    /// Writes the value in the struct, without a mark of the struct.
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        value.serialize(self)
    }

    /// Writes the variant's name, then its value.
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        self.variant(name);
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, PackError> {
        self.serialize_tuple(Writer::known_length(length)?)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self, PackError> {
        self.out.push(LIST);
        self.length(length);
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Self, PackError> {
        self.serialize_tuple(length)
    }

    /// Writes the variant's name and the start of a list; the members follow.
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Self, PackError> {
        self.variant(name);
        self.serialize_tuple(length)
    }

    /// Writes the start of a mapping; an error if its length is not known in advance.
    fn serialize_map(self, length: Option<usize>) -> Result<Self, PackError> {
        let length = Writer::known_length(length)?;
        self.out.push(MAP);
        self.length(length);
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'w>, PackError> {
        self.out.push(STRUCT);
        Ok(Fields { writer: self })
    }

    /// Writes the variant's name and the start of a struct; the fields and an end mark follow.
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Fields<'w>, PackError> {
        self.variant(name);
        self.serialize_struct(name, length)
    }
}

/// The fields of a struct.
struct Fields<'w> {
    writer: &'w mut Writer,
}

impl Fields<'_> {
    /// Appends a struct's field, with its name, unless its value is `None`.
    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        let before = self.writer.out.len();
        self.writer.name(name);
        let start = self.writer.out.len();
        value.serialize(&mut *self.writer)?;
        if self.writer.none_at == Some(start) && self.writer.out.len() == start + 1 {
            self.writer.out.truncate(before);
            self.writer.none_at = None;
        }
        Ok(())
    }

    /// Appends the mark that ends a struct.
    fn end(self) -> Result<(), PackError> {
        self.writer.out.push(0);
        Ok(())
    }
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = PackError;

    /// Appends a field with its name; a field whose value is `None` is left out.
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), PackError> {
        Fields::end(self)
    }
}

impl ser::SerializeStructVariant for Fields<'_> {
    type Ok = ();
    type Error = PackError;

    /// Appends a field with its name; a field whose value is `None` is left out.
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), PackError> {
        Fields::end(self)
    }
}

macro_rules! members {
    ($($of:ident::$member:ident),+) => {
        $(impl ser::$of for &mut Writer {
            type Ok = ();
            type Error = PackError;

            fn $member<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), PackError> {
                Ok(())
            }
        })+
    };
}

members! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
}

impl ser::SerializeMap for &mut Writer {
    type Ok = ();
    type Error = PackError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), PackError> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), PackError> {
        Ok(())
    }
}
