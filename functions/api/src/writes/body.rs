//! The JSON bodies of requests that change something: an object whose members are read one by one,
//! with an error that names the member.

use crate::reply::ErrorResponse;
use serde_json::{Map, Value};
use sluice_commands::Switch;

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body(Map<String, Value>);

impl Body {
    /// Parses a body; an empty one has no members. 400 for anything but a JSON object.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ErrorResponse> {
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            _ => Err(ErrorResponse::bad("The body must be a JSON object.")),
        }
    }

    /// Returns a member; `None` if it is missing, null or an empty text, as zuul-client sends what
    /// is not set.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null() && *value != "")
    }

    /// Returns whether a member is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a member that is a text, or a number as a text; `None` if it is not set.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ErrorResponse> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(ErrorResponse::bad(format!("\"{name}\" must be a text."))),
        }
    }

    /// Returns a text that must be there.
    pub(super) fn required_text(&self, name: &str) -> Result<String, ErrorResponse> {
        let text = self.text(name)?;
        text.ok_or_else(|| ErrorResponse::bad(format!("The body must have \"{name}\".")))
    }

    /// Returns a member that is a whole number of 0 or more; `None` if it is not set.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ErrorResponse> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        let why = || ErrorResponse::bad(format!("\"{name}\" must be a whole number of 0 or more."));
        number.map(Some).ok_or_else(why)
    }

    /// Returns a member that turns something on or off; unset, it leaves it as it is.
    pub(super) fn switch(&self, name: &str) -> Result<Switch, ErrorResponse> {
        match self.get(name) {
            None => Ok(Switch::Unchanged),
            Some(Value::Bool(true)) => Ok(Switch::On),
            Some(Value::Bool(false)) => Ok(Switch::Off),
            Some(_) => Err(ErrorResponse::bad(format!("\"{name}\" must be true or false."))),
        }
    }

    /// Returns a member that is a list of texts and not empty.
    pub(super) fn required_texts(&self, name: &str) -> Result<Vec<String>, ErrorResponse> {
        let texts = self.get(name).and_then(Value::as_array).and_then(|list| {
            list.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        let why = || ErrorResponse::bad(format!("\"{name}\" must be a list of texts."));
        texts.filter(|texts| !texts.is_empty()).ok_or_else(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: a body of another form is refused with the member's name.
    #[test]
    fn members_are_read_by_type() {
        let body = Body::parse(br#"{"a": "x", "n": 3, "e": "", "z": null, "b": true, "l": ["p"]}"#);
        let body = body.unwrap();
        assert_eq!(body.text("a").unwrap().as_deref(), Some("x"));
        assert_eq!(body.text("n").unwrap().as_deref(), Some("3"));
        assert_eq!((body.text("e").unwrap(), body.text("z").unwrap()), (None, None));
        assert_eq!((body.number("n").unwrap(), body.number("e").unwrap()), (Some(3), None));
        assert_eq!(body.switch("b").unwrap(), Switch::On);
        assert_eq!(body.switch("none").unwrap(), Switch::Unchanged);
        assert_eq!(body.required_texts("l").unwrap(), ["p"]);
        for error in [
            body.text("b").unwrap_err(),
            body.number("b").unwrap_err(),
            body.switch("a").unwrap_err(),
            body.required_texts("b").unwrap_err(),
            body.required_text("z").unwrap_err(),
        ] {
            assert!(error.to_string().contains('"'), "{error}");
        }
        for text in ["[]", "7", "{", "\"a\"", "null"] {
            assert!(Body::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Body::parse(b"").is_ok());
    }
}
