//! What a plain scalar means in YAML 1.1, as PyYAML resolves it.

use super::Value;
use regex::Regex;
use std::sync::LazyLock;

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

fn expression(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|cause| unreachable!("a built-in expression does not compile: {cause}"))
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

/// Returns the type of a plain scalar.
pub(super) fn kind(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "<<" => return Kind::Merge,
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "true" | "True" | "TRUE" | "false" | "False" | "FALSE" | "on"
        | "On" | "ON" | "off" | "Off" | "OFF" => return Kind::Bool,
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

/// Returns the value of a text read as `kind`, or why it has none.
pub(super) fn value(text: &str, kind: Kind) -> Result<Value, String> {
    match kind {
        Kind::Null => Ok(Value::Null),
        Kind::Bool => boolean(text).map(Value::Bool).ok_or_else(|| format!("\"{text}\" is no boolean")),
        Kind::Int => integer(text).ok_or_else(|| format!("\"{text}\" is no integer")),
        Kind::Float => float(text).map(Value::Float).ok_or_else(|| format!("\"{text}\" is no float")),
        Kind::Date if DATE.is_match(text) => Ok(Value::Date(text.to_owned())),
        Kind::Date => Err(format!("\"{text}\" is no date")),
        Kind::Text | Kind::Merge => Ok(Value::Text(text.to_owned())),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" => Some(true),
        "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Value> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let magnitude = if digits == "0" {
        Some(0)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        Some(i128::from_str_radix(binary, 2).ok()?)
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        Some(i128::from_str_radix(hexadecimal, 16).ok()?)
    } else if let Some(octal) = digits.strip_prefix('0') {
        Some(i128::from_str_radix(octal, 8).ok()?)
    } else if digits.contains(':') {
        let mut sum: i128 = 0;
        for part in digits.split(':') {
            sum = sum.checked_mul(60)?.checked_add(part.parse().ok()?)?;
        }
        Some(sum)
    } else {
        if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok()
    };
    let number = magnitude.map(|magnitude| if negative { -magnitude } else { magnitude });
    match number.and_then(|number| i64::try_from(number).ok()) {
        Some(number) => Some(Value::Int(number)),
        None => Some(Value::Text(plain)),
    }
}

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

/// Returns a float as Python prints it, for numbers of ordinary size.
pub(super) fn float_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else {
        format!("{number:?}")
    }
}
