//! The meaning of plain scalars in YAML 1.1, as PyYAML resolves them.

use super::Value;
use regex::Regex;
use std::sync::LazyLock;

/// Maximum number of digits of an integer. Python has the same limit.
const DIGITS_MAX: usize = 4_300;

/// The implicit type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Date,
    Float,
    Int,
    Null,
    Merge,
    Text,
}

/// Compiles a regular expression of the YAML specification, which is always valid.
fn expression(text: &str) -> Regex {
    Regex::new(text)
        .unwrap_or_else(|cause| unreachable!("a built-in expression does not compile: {cause}"))
}

static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    expression(concat!(
        r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?",
        r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*",
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ))
});
static INT: LazyLock<Regex> = LazyLock::new(|| {
    expression(concat!(
        r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)",
        r"|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$"
    ))
});

static DATE: LazyLock<Regex> = LazyLock::new(|| {
    expression(concat!(
        r"^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?",
        r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$"
    ))
});

/// Returns the type that the text of a scalar without quotes and tag means, as in PyYAML.
pub(super) fn kind(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "<<" => return Kind::Merge,
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "true" | "True" | "TRUE" | "false"
        | "False" | "FALSE" | "on" | "On" | "ON" | "off" | "Off" | "OFF" => return Kind::Bool,
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return Kind::Text;
    }
    if FLOAT.is_match(text) {
        Kind::Float
    } else if INT.is_match(text) {
        Kind::Int
    } else if DATE.is_match(text) {
        Kind::Date
    } else {
        Kind::Text
    }
}

/// Returns a text as a value of this type; the text of a merge key stays a text, and any text
/// counts as a null. The error is a message that the text is not a valid value of the type.
pub(super) fn value(text: &str, kind: Kind) -> Result<Value, String> {
    match kind {
        Kind::Null => Ok(Value::Null),
        Kind::Bool => {
            boolean(text).map(Value::Bool).ok_or_else(|| format!("\"{text}\" is no boolean"))
        }
        Kind::Int => integer(text),
        Kind::Float => {
            float(text).map(Value::Float).ok_or_else(|| format!("\"{text}\" is no float"))
        }
        Kind::Date if DATE.is_match(text) => Ok(Value::Date(text.to_owned())),
        Kind::Date => Err(format!("\"{text}\" is no date")),
        Kind::Text | Kind::Merge => Ok(Value::Text(text.to_owned())),
    }
}

/// Parses one of YAML's boolean words; `None` for any other text.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" => Some(true),
        "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// Reads an integer of any size in the notations that Python's YAML accepts: decimal, `0b`, `0x`,
/// octal with `0`, base 60, and `_` between digits. Integers beyond 64 bits are stored as decimal
/// digits. The error is a message: no integer, or more than [`DIGITS_MAX`] digits.
fn integer(text: &str) -> Result<Value, String> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if digits.len() > DIGITS_MAX {
        return Err(format!(
            "an integer can have at most {DIGITS_MAX} digits; quote it if it is meant as text"
        ));
    }
    let magnitude = magnitude(digits).ok_or_else(|| format!("\"{text}\" is no integer"))?;
    let number = if negative { format!("-{magnitude}") } else { magnitude };
    Ok(match number.parse::<i64>() {
        Ok(number) => Value::Int(number),
        Err(_) => Value::Long(number),
    })
}

/// Returns the decimal digits of an unsigned integer in any of YAML's notations; `None` if it is
/// not valid. The caller has removed the sign and each `_`.
fn magnitude(digits: &str) -> Option<String> {
    let mut limbs = Vec::new();
    if digits == "0" {
        return Some("0".to_owned());
    } else if let Some(binary) = digits.strip_prefix("0b") {
        append_digits(&mut limbs, binary, 2)?;
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        append_digits(&mut limbs, hexadecimal, 16)?;
    } else if let Some(octal) = digits.strip_prefix('0') {
        append_digits(&mut limbs, octal, 8)?;
    } else {
        // The parts of a base-60 integer, if there are several.
        let mut parts = digits.split(':');
        append_digits(&mut limbs, parts.next()?, 10)?;
        for part in parts {
            times_plus(&mut limbs, 60, u64::from(part.parse::<u16>().ok()?));
        }
    }
    Some(decimal(&limbs))
}

/// The base of a long number's limbs, the lowest limb first.
const LIMB: u64 = 1_000_000_000;
/// The number of digits read at once. In any base up to 16 their value is less than a limb.
const AT_ONCE: usize = 7;

/// Appends the digits of a text, in this base, to the number in `limbs`; a base above 16 is not
/// allowed. `None`, and the number unchanged, if there are no digits or one is invalid.
fn append_digits(limbs: &mut Vec<u64>, digits: &str, radix: u32) -> Option<()> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    for some in digits.as_bytes().chunks(AT_ONCE) {
        let value = u64::from_str_radix(std::str::from_utf8(some).ok()?, radix).ok()?;
        let factor = some.iter().fold(1, |factor, _| factor * u64::from(radix));
        times_plus(limbs, factor, value);
    }
    Some(())
}

/// Multiplies the number in `limbs` by `factor` and adds `more` to it. Both must be less than
/// [`LIMB`], the base of the limbs.
fn times_plus(limbs: &mut Vec<u64>, factor: u64, more: u64) {
    let mut carry = more;
    for limb in limbs.iter_mut() {
        let sum = *limb * factor + carry;
        *limb = sum % LIMB;
        carry = sum / LIMB;
    }
    if carry > 0 {
        limbs.push(carry);
    }
}

/// Formats a number of any size, in limbs of nine digits with the lowest first, in decimal digits.
fn decimal(limbs: &[u64]) -> String {
    let Some((highest, lower)) = limbs.split_last() else { return "0".to_owned() };
    let lower: String = lower.iter().rev().map(|limb| format!("{limb:09}")).collect();
    format!("{highest}{lower}")
}

/// Parses a floating-point number, also in base 60, with `_` anywhere, or `.inf` and `.nan`, as
/// PyYAML does; `None` for any other text.
fn float(text: &str) -> Option<f64> {
    let plain = text.replace('_', "").to_ascii_lowercase();
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    match digits {
        ".inf" => Some(sign * f64::INFINITY),
        ".nan" => Some(f64::NAN),
        _ if digits.contains(':') => {
            let mut sum = 0.0;
            for part in digits.split(':') {
                sum = sum * 60.0 + part.parse::<f64>().ok()?;
            }
            Some(sign * sum)
        }
        _ => digits.parse::<f64>().ok().map(|number| sign * number),
    }
}

/// Returns a float as text. A finite one is printed as Rust's `{:?}` does, which is as Python does
/// for numbers of ordinary size. The others are `nan`, `inf` and `-inf`.
pub(super) fn float_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else {
        format!("{number:?}")
    }
}
