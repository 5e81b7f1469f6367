//! The attribute list as a tree of rows per object, and the parser of its types.

use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// An attribute of the list, with the attributes below it.
#[derive(Debug, Default)]
pub struct Attribute {
    pub kind: Option<Type>,
    pub required: bool,
    pub children: BTreeMap<String, Attribute>,
}

/// Attributes by object.
pub type Objects = BTreeMap<String, Attribute>;

/// Returns a sample name for a key that users choose.
pub fn chosen_name(object: &str, above: &str) -> &'static str {
    match (object, above) {
        (object, "") if object.starts_with("tenant.source") => "org/project",
        (_, "") => "check",
        _ => "chosen",
    }
}

/// Parses the rows of configuration areas. `is_attribute` decides which rows name an attribute.
pub fn read(text: &str, is_attribute: impl Fn(&str, &str) -> bool) -> Objects {
    let mut objects = Objects::new();
    for row in text.lines().skip(1) {
        let fields: Vec<&str> = row.split('\t').collect();
        let [area, object, name, kind, required, _] = fields[..] else {
            panic!("a row has not six fields: {row}")
        };
        let name = &*named(name);
        if !matches!(area, "in-repo config" | "tenant config" | "driver" | "launcher driver") {
            continue;
        }
        if !is_attribute(object, name) {
            continue;
        }
        for path in expanded(object, name) {
            let mut at = objects.entry(object.to_owned()).or_default();
            for part in &path {
                at = at.children.entry(part.clone()).or_default();
            }
            at.kind = Some(Type::of_row(kind));
            at.required = required == "yes";
        }
    }
    objects
}

/// Returns an attribute's name. Two rows of a flavor are schema markers in the list; they mean
/// `instance_type` and `fleet`.
fn named(name: &str) -> std::borrow::Cow<'_, str> {
    match name {
        "flavors.<Required>" => "flavors.instance-type".into(),
        "flavors.<object>" => "flavors.fleet".into(),
        other => other.into(),
    }
}

/// Expands `{a|b}` and replaces `<str>` by sample names.
fn expanded(object: &str, name: &str) -> Vec<Vec<String>> {
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    for part in name.split('.') {
        let options: Vec<String> =
            match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(list) => list.split('|').map(str::to_owned).collect(),
                None if part == "<str>" => {
                    vec![chosen_name(object, paths[0].last().map_or("", String::as_str)).to_owned()]
                }
                None => vec![part.to_owned()],
            };
        let longer = |path: &Vec<String>| {
            let path = path.clone();
            options
                .iter()
                .map(move |option| [path.as_slice(), std::slice::from_ref(option)].concat())
                .collect::<Vec<_>>()
        };
        paths = paths.iter().flat_map(longer).collect();
    }
    paths
}

/// The type of an attribute's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    Text,
    Bool,
    Float,
    Null,
    Map,
    Variables,
    VariableName,
    True,
    /// A number with a minimum.
    Int(i64),
    Literal(String),
    List(Vec<Type>),
    /// One of several types.
    OneOf(Vec<Type>),
}

impl Type {
    /// Parses the type of a row.
    pub fn of_row(text: &str) -> Self {
        let text = text.strip_prefix("override_value ").unwrap_or(text);
        let Some(members) = text.strip_prefix("list of ") else {
            return Self::one_of(&split(text));
        };
        let words = split(members);
        let (first, second) = words.split_at(words.len() / 2);
        // The list's text for "one, or a list of them" repeats the type.
        let is_cut = members.len() + "list of ".len() >= WIDTH;
        if first == second || is_cut {
            let mut one: Vec<&str> = if is_cut { words.clone() } else { first.to_vec() };
            one.dedup();
            let one = Self::one_of(&one);
            return Self::OneOf(vec![one.clone(), Self::List(vec![one])]);
        }
        Self::List(words.iter().map(|word| Self::single(word)).collect())
    }

    fn one_of(words: &[&str]) -> Self {
        match words {
            [one] => Self::single(one),
            several => Self::OneOf(several.iter().map(|word| Self::single(word)).collect()),
        }
    }

    fn single(word: &str) -> Self {
        let word = word.split('&').next().unwrap_or(word);
        match word {
            "str" | "topicValue" => Self::Text,
            "int" => Self::Int(i64::MIN),
            "int&range(1..None)" => Self::Int(1),
            "bool" => Self::Bool,
            "float" => Self::Float,
            "null" => Self::Null,
            "dict" | "object" | "v" => Self::Map,
            "ansible_vars_dict" => Self::Variables,
            "ansible_var_name" => Self::VariableName,
            "True" => Self::True,
            "False" => Self::Bool,
            "qosValue" => Self::Int(0),
            "no_dup_config_paths" => Self::OneOf(vec![Self::Text, Self::List(vec![Self::Text])]),
            quoted if quoted.starts_with('\'') => {
                Self::Literal(quoted.trim_matches('\'').to_owned())
            }
            other => panic!("the list has a type that this test does not know: {other}"),
        }
    }

    /// Returns whether a value is of this type, regardless of other constraints.
    pub fn accepts(&self, value: &Json) -> bool {
        match (self, value) {
            (Self::Text | Self::VariableName, Json::String(_))
            | (Self::Bool, Json::Bool(_))
            | (Self::True, Json::Bool(true))
            | (Self::Null, Json::Null)
            | (Self::Map | Self::Variables, Json::Object(_)) => true,
            (Self::Int(least), Json::Number(number)) => {
                number.as_i64().is_some_and(|number| number >= *least)
            }
            (Self::Float, Json::Number(_)) => true,
            (Self::Literal(word), Json::String(text)) => word == text,
            (Self::List(kinds), Json::Array(list)) => {
                list.iter().all(|member| kinds.iter().any(|kind| kind.accepts(member)))
            }
            (Self::OneOf(kinds), value) => kinds.iter().any(|kind| kind.accepts(value)),
            _ => false,
        }
    }

    /// Returns valid values of this type, one for each form. `text` and `map` are a sample text and
    /// mapping.
    pub fn right(&self, text: &str, map: &Json) -> Vec<Json> {
        match self {
            Self::Text => vec![json!(text)],
            Self::VariableName => vec![json!("a_name")],
            Self::Bool => vec![json!(true), json!(false)],
            Self::True => vec![json!(true)],
            Self::Float => vec![json!(2.5)],
            Self::Null => vec![Json::Null],
            Self::Int(_) => vec![json!(2)],
            Self::Literal(word) => vec![json!(word)],
            Self::Map => vec![map.clone()],
            Self::Variables => vec![json!({"a_name": {"any": ["thing", 1, null]}})],
            Self::List(kinds) => kinds
                .iter()
                .flat_map(|kind| kind.right(text, map))
                .map(|one| json!([one]))
                .collect(),
            Self::OneOf(kinds) => kinds.iter().flat_map(|kind| kind.right(text, map)).collect(),
        }
    }

    /// Returns values of other types.
    pub fn wrong(&self) -> Vec<Json> {
        let ill_named = json!({"not a name": 1});
        let mut values = vec![
            json!(null),
            json!(true),
            json!(7),
            json!(1.5),
            json!("neither of these"),
            json!(["neither of these"]),
            json!([7]),
            json!([null]),
            json!([["nested"]]),
            json!([{"neither": "of these"}]),
            json!({"neither": "of these"}),
        ];
        if let Self::Int(least) = self
            && *least > i64::MIN
        {
            values.push(json!(least - 1));
        }
        values.retain(|value| !self.accepts(value));
        match self {
            Self::Variables => {
                values.extend([ill_named, json!({"zuul": 1}), json!({"nodepool": {}})])
            }
            Self::VariableName => values.extend([json!("not-a-name"), json!("1st"), json!("")]),
            Self::True => values.push(json!(false)),
            _ => {}
        }
        values
    }
}

/// The list truncates a type at this number of characters.
const WIDTH: usize = 160;

/// Splits a type at slashes. Drops a truncated last part.
fn split(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split('/').collect();
    if words
        .last()
        .is_some_and(|word| word.starts_with('\'') && (!word.ends_with('\'') || word.len() < 2))
    {
        words.pop();
    }
    words
}
