//! Decodes values. Lengths are checked against the remaining bytes, and nesting is limited.

use super::{
    BYTES, FALSE, FLOAT, LIST, MAP, NEGATIVE, NONE, PackError, SMALL, SMALL_NUMBER, SMALL_TEXT,
    SOME, STRUCT, TEXT, TRUE, UNSIGNED, VARIANT,
};
use serde::de::value::StrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, IntoDeserializer as _, Visitor};

/// Maximum nesting. Configuration nests less than 100 levels deep, within a few structs.
const DEPTH_MAX: u32 = 400;

/// Decodes a value written with this table of names. An error if the bytes are damaged, anything
/// follows the value, or it is not a `T`.
pub(crate) fn read<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    names: &'de [impl AsRef<str>],
) -> Result<T, PackError> {
    let names = &|place: usize| names.get(place).map(AsRef::as_ref);
    let mut reader = Reader { rest: bytes, names, depth: 0 };
    let value = T::deserialize(&mut reader)?;
    if reader.rest.is_empty() { Ok(value) } else { Err(damaged("something follows the value")) }
}

struct Reader<'n, 'de> {
    rest: &'de [u8],
    names: &'n dyn Fn(usize) -> Option<&'de str>,
    depth: u32,
}

/// Returns the error for bytes that are not a packed value.
fn damaged(why: &str) -> PackError {
    PackError(format!("the bytes are damaged: {why}"))
}

impl<'de> Reader<'_, 'de> {
    /// Returns the next byte without consuming it; an error at the end.
    fn peek(&self) -> Result<u8, PackError> {
        self.rest.first().copied().ok_or_else(|| damaged("they end too early"))
    }

    /// Consumes and returns the next byte; an error at the end.
    fn byte(&mut self) -> Result<u8, PackError> {
        let byte = self.peek()?;
        self.rest = self.rest.get(1..).unwrap_or_default();
        Ok(byte)
    }

    /// Consumes and returns the next `length` bytes; an error if fewer are left.
    fn take(&mut self, length: usize) -> Result<&'de [u8], PackError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| damaged("they end too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Consumes and returns a number of variable length, without a type before it; an error if it
    /// does not end within ten bytes or the bytes end.
    fn number(&mut self) -> Result<u64, PackError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number does not end"))
    }

    /// Consumes and returns the number of values that follow. An error if fewer bytes are left,
    /// since each value takes at least one.
    fn length(&mut self) -> Result<usize, PackError> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > self.rest.len() { Err(damaged("they end too early")) } else { Ok(length) }
    }

    /// Consumes and returns a text of `length` bytes; an error if fewer are left or they are not
    /// UTF-8.
    fn text(&mut self, length: usize) -> Result<&'de str, PackError> {
        std::str::from_utf8(self.take(length)?).map_err(|_| damaged("a text is no UTF-8"))
    }

    /// Consumes the index of a name and returns the name; `None` for index 0, which ends a struct.
    /// An error if the name is not in the table.
    fn name(&mut self) -> Result<Option<StrDeserializer<'de, PackError>>, PackError> {
        let Some(place) = usize::try_from(self.number()?).unwrap_or(usize::MAX).checked_sub(1)
        else {
            return Ok(None);
        };
        let name = (self.names)(place).ok_or_else(|| damaged("a name is not in the table"))?;
        Ok(Some(name.into_deserializer()))
    }

    /// Reads a value by `read` that is nested one level deeper; an error if more than [`DEPTH_MAX`]
    /// levels are nested. After an error the reader must not be used again.
    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, PackError>,
    ) -> Result<T, PackError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(damaged("they are nested too deeply"));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }
}

impl<'de> de::Deserializer<'de> for &mut Reader<'_, 'de> {
    type Error = PackError;

    fn is_human_readable(&self) -> bool {
        false
    }

    /// Reads the next value as the type that its first byte gives, whatever type is wanted. An
    /// error if the bytes are damaged or nested too deeply.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PackError> {
        match self.byte()? {
            NONE => visitor.visit_unit(),
            FALSE => visitor.visit_bool(false),
            TRUE => visitor.visit_bool(true),
            UNSIGNED => visitor.visit_u64(self.number()?),
            NEGATIVE => visitor.visit_i64(!(self.number()? as i64)),
            FLOAT => {
                let bytes = self.take(8)?.try_into().map_err(|_| damaged("they end too early"))?;
                visitor.visit_f64(f64::from_le_bytes(bytes))
            }
            TEXT => {
                let length = self.length()?;
                visitor.visit_borrowed_str(self.text(length)?)
            }
            BYTES => {
                let length = self.length()?;
                visitor.visit_borrowed_bytes(self.take(length)?)
            }
            LIST => {
                let left = self.length()?;
                self.nested(|reader| visitor.visit_seq(Members { reader, left }))
            }
            MAP => {
                let left = self.length()?;
                self.nested(|reader| visitor.visit_map(Members { reader, left }))
            }
            STRUCT => self.nested(|reader| visitor.visit_map(Fields { reader })),
            VARIANT => self.nested(|reader| visitor.visit_enum(Variant { reader })),
            SOME => self.nested(|reader| visitor.visit_some(reader)),
            byte if (SMALL_NUMBER..SMALL_NUMBER + SMALL).contains(&byte) => {
                visitor.visit_u64(u64::from(byte - SMALL_NUMBER))
            }
            byte if (SMALL_TEXT..SMALL_TEXT + SMALL).contains(&byte) => {
                visitor.visit_borrowed_str(self.text(usize::from(byte - SMALL_TEXT))?)
            }
            _ => Err(damaged("an unknown sort of value")),
        }
    }

    /// Reads a value; `None` for a stored `None`. Any other value counts as `Some`.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PackError> {
        match self.peek()? {
            NONE => {
                self.byte()?;
                visitor.visit_none()
            }
            SOME => {
                self.byte()?;
                self.nested(|reader| visitor.visit_some(reader))
            }
            _ => visitor.visit_some(self),
        }
    }

    /// Reads a newtype struct, which is stored as the value in it.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PackError> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads a variant by its name; an error for any other value.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PackError> {
        match self.byte()? {
            VARIANT => self.nested(|reader| visitor.visit_enum(Variant { reader })),
            _ => Err(damaged("a variant was expected")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// The members of a list or mapping.
struct Members<'r, 'n, 'de> {
    reader: &'r mut Reader<'n, 'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Members<'_, '_, 'de> {
    type Error = PackError;

    /// Reads the next member of the list; `None` after the last.
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, PackError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Members<'_, '_, 'de> {
    type Error = PackError;

    /// Reads the next key of the mapping; `None` after the last.
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, PackError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, PackError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The fields of a struct.
struct Fields<'r, 'n, 'de> {
    reader: &'r mut Reader<'n, 'de>,
}

impl<'de> de::MapAccess<'de> for Fields<'_, '_, 'de> {
    type Error = PackError;

    /// Reads the name of the struct's next field; `None` at the mark that ends the struct.
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, PackError> {
        self.reader.name()?.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, PackError> {
        seed.deserialize(&mut *self.reader)
    }
}

struct Variant<'r, 'n, 'de> {
    reader: &'r mut Reader<'n, 'de>,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, '_, 'de> {
    type Error = PackError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), PackError> {
        let name = self.reader.name()?.ok_or_else(|| damaged("a variant has no name"))?;
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_, 'de> {
    type Error = PackError;

    /// Reads the end of a variant without a value; an error if a value follows.
    fn unit_variant(self) -> Result<(), PackError> {
        match self.reader.byte()? {
            NONE => Ok(()),
            _ => Err(damaged("a variant has more than its name")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, PackError> {
        seed.deserialize(&mut *self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, PackError> {
        de::Deserializer::deserialize_any(&mut *self.reader, visitor)
    }

    /// Reads the fields of a variant, which are stored as a struct.
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PackError> {
        de::Deserializer::deserialize_any(&mut *self.reader, visitor)
    }
}
