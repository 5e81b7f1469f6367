//! Reading typed attributes out of a mapping, collecting every mistake on the way.

use super::combine::{Combine, Combined};
use crate::Pattern;
use crate::error::{Problem, ProblemKind, Severity};
use crate::yaml::{Mark, Node, Value};
use serde_json::{Map, Value as Json};

/// The mistakes of one stanza.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) list: Vec<Problem>,
    pub(crate) stanza: String,
    /// Where the stanza begins.
    pub(crate) start: Option<Mark>,
}

impl Problems {
    pub(crate) fn add(&mut self, problem: Problem) {
        let problem = problem.in_stanza(&self.stanza);
        self.list.push(match self.start {
            Some(start) => problem.from_stanza_at(start),
            None => problem,
        });
    }

    pub(crate) fn syntax(&mut self, node: &Node, attribute: &str, message: impl Into<String>) {
        let problem = Problem::new(ProblemKind::Syntax, node.start, node.end, message);
        self.add(if attribute.is_empty() { problem } else { problem.about(attribute) });
    }

    /// Adds what works but is probably not meant.
    pub(crate) fn warning(&mut self, node: &Node, attribute: &str, message: impl Into<String>) {
        self.add(
            Problem::new(ProblemKind::Syntax, node.start, node.end, message)
                .about(attribute)
                .as_warning(),
        );
    }

    /// Returns whether any of them is an error.
    pub(crate) fn any_error(&self) -> bool {
        self.list.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Adds what is a text only in quotes: plain words that YAML reads as something else.
    pub(crate) fn unquoted(&mut self, node: &Node, message: String, attribute: &str) {
        let is_word = matches!(
            node.value,
            Value::Bool(_) | Value::Int(_) | Value::Long(_) | Value::Float(_) | Value::Date(_)
        );
        let advice =
            if is_word { ": that is how YAML reads this word, so put it in quotes" } else { "" };
        self.syntax(node, attribute, format!("{message}{advice}"));
    }

    pub(crate) fn expected(&mut self, node: &Node, attribute: &str, what: &str) {
        self.syntax(
            node,
            attribute,
            format!("expected {what} for \"{attribute}\", but found {}", node.kind()),
        );
    }
}

/// A mapping whose attributes are taken one after the other; [`Fields::finish`] complains of those
/// nobody took.
pub(crate) struct Fields<'n> {
    node: &'n Node,
    left: Vec<(&'n str, &'n Node, &'n Node)>,
    asked: Vec<&'static str>,
    prefix: String,
    /// Whether any attribute that was asked for was there.
    given: bool,
}

impl<'n> Fields<'n> {
    /// Returns the fields of a mapping; `None`, with a complaint, for anything else.
    pub(crate) fn of(node: &'n Node, prefix: &str, p: &mut Problems) -> Option<Self> {
        let Some(map) = node.as_map() else {
            let name = if prefix.is_empty() { "the stanza" } else { prefix };
            p.syntax(
                node,
                prefix,
                format!("expected a mapping for {name}, but found {}", node.kind()),
            );
            return None;
        };
        let mut left = Vec::with_capacity(map.len());
        for (key, value) in map {
            match key.as_text() {
                Some(name) => left.push((name, key, value)),
                None => p.unquoted(
                    key,
                    format!("expected a string as a key, but found {}", key.kind()),
                    prefix,
                ),
            }
        }
        Some(Self { node, left, asked: Vec::new(), prefix: prefix.to_owned(), given: false })
    }

    pub(crate) fn node(&self) -> &'n Node {
        self.node
    }

    /// Returns whether an attribute is there and not yet taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(key, ..)| *key == name)
    }

    /// Returns an attribute that is there and not yet taken, and leaves it.
    pub(crate) fn peek(&self, name: &str) -> Option<&'n Node> {
        self.left.iter().find(|(key, ..)| *key == name).map(|(.., value)| *value)
    }

    /// Returns the keys of what is not yet taken.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'n Node> {
        self.left.iter().map(|(_, key, _)| *key)
    }

    /// Returns what is not yet taken: its name, its key and its value.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'n str, &'n Node, &'n Node)> {
        self.left.iter().copied()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    /// Takes an attribute as it is.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.asked.push(name);
        let at = self.left.iter().position(|(key, ..)| *key == name)?;
        self.given = true;
        Some(self.left.remove(at).2)
    }

    /// Takes an attribute that must be there.
    pub(crate) fn required(&mut self, name: &'static str, p: &mut Problems) -> Option<&'n Node> {
        let node = self.take(name);
        if node.is_none() {
            p.syntax(self.node, &self.path(name), format!("required key not provided: \"{name}\""));
        }
        node
    }

    /// Takes an attribute that has several names, of which one may be given.
    pub(crate) fn one_of(
        &mut self,
        names: &[&'static str],
        p: &mut Problems,
    ) -> Option<(&'static str, &'n Node)> {
        let mut found: Option<(&'static str, &'n Node)> = None;
        for name in names {
            let Some(node) = self.take(name) else { continue };
            match found {
                None => found = Some((name, node)),
                Some((first, _)) => {
                    p.syntax(
                        node,
                        &self.path(name),
                        format!("\"{name}\" is another word for \"{first}\": give one of them"),
                    );
                }
            }
        }
        found
    }

    /// Returns whether any attribute that was asked for was there.
    pub(crate) fn has_been_given(&self) -> bool {
        self.given
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> Vec<(&'n str, &'n Node)> {
        std::mem::take(&mut self.left).into_iter().map(|(name, _, value)| (name, value)).collect()
    }

    /// Complains of what is left: attributes nobody knows.
    pub(crate) fn finish(self, p: &mut Problems) {
        for (name, key, _) in &self.left {
            let problem = Problem::new(
                ProblemKind::Syntax,
                key.start,
                key.end,
                format!("extra keys not allowed: \"{name}\" is not known here"),
            )
            .about(&self.path(name))
            .suggesting(name, self.asked.iter().copied());
            p.add(problem);
        }
    }

    pub(crate) fn text(&mut self, name: &'static str, p: &mut Problems) -> Option<String> {
        let node = self.take(name)?;
        text(node, &self.path(name), p)
    }

    /// Takes a text that must be there.
    pub(crate) fn required_text(&mut self, name: &'static str, p: &mut Problems) -> Option<String> {
        let node = self.required(name, p)?;
        text(node, &self.path(name), p)
    }

    /// Takes the name of something, which must be there: an empty one is none.
    pub(crate) fn required_name(&mut self, name: &'static str, p: &mut Problems) -> Option<String> {
        let node = self.required(name, p)?;
        let found = text(node, &self.path(name), p)?;
        if !found.trim().is_empty() {
            return Some(found);
        }
        p.syntax(
            node,
            &self.path(name),
            format!("\"{}\" is empty: a name has at least a character", self.path(name)),
        );
        None
    }

    pub(crate) fn flag(&mut self, name: &'static str, p: &mut Problems) -> Option<bool> {
        let node = self.take(name)?;
        match node.value {
            Value::Bool(flag) => Some(flag),
            _ => {
                p.expected(node, &self.path(name), "a boolean");
                None
            }
        }
    }

    /// Takes a count of at least `least`.
    pub(crate) fn count(
        &mut self,
        name: &'static str,
        least: u32,
        p: &mut Problems,
    ) -> Option<u32> {
        let node = self.take(name)?;
        count(node, &self.path(name), (least, u32::MAX), p)
    }

    /// Takes the number of a port to connect to.
    pub(crate) fn port(&mut self, name: &'static str, p: &mut Problems) -> Option<u32> {
        let node = self.take(name)?;
        count(node, &self.path(name), (1, u16::MAX.into()), p)
    }

    /// Takes a time: a number of seconds, or a text such as `30m`.
    pub(crate) fn seconds(&mut self, name: &'static str, p: &mut Problems) -> Option<u64> {
        let node = self.take(name)?;
        match seconds(node) {
            Some(seconds) => Some(seconds),
            None if matches!(node.value, Value::Int(_) | Value::Long(_)) => {
                let path = self.path(name);
                p.syntax(
                    node,
                    &path,
                    format!("\"{path}\" must be a number of seconds from 0 to {}", i64::MAX),
                );
                None
            }
            None => {
                p.expected(node, &self.path(name), "a number of seconds or a time such as 30m");
                None
            }
        }
    }

    /// Takes a list of texts; one text is a list of one.
    pub(crate) fn texts(&mut self, name: &'static str, p: &mut Problems) -> Option<Vec<String>> {
        let node = self.take(name)?;
        Some(texts(node, &self.path(name), p))
    }

    /// Takes a list of texts; one text alone is none.
    pub(crate) fn text_list(
        &mut self,
        name: &'static str,
        p: &mut Problems,
    ) -> Option<Vec<String>> {
        let node = self.take(name)?;
        match node.as_list() {
            Some(_) => Some(texts(node, &self.path(name), p)),
            None => {
                p.expected(node, &self.path(name), "a list");
                None
            }
        }
    }

    /// Takes a version: a text or a number.
    pub(crate) fn version(&mut self, name: &'static str, p: &mut Problems) -> Option<String> {
        let node = self.take(name)?;
        match node.value {
            Value::Text(_) | Value::Int(_) | Value::Long(_) | Value::Float(_) => node.scalar_text(),
            _ => {
                p.expected(node, &self.path(name), "a string or number");
                None
            }
        }
    }

    /// Takes an age in seconds, a text of a number and perhaps one of `s m h d w`.
    pub(crate) fn age(&mut self, name: &'static str, p: &mut Problems) -> Option<u64> {
        let node = self.take(name)?;
        let found = node.as_text().and_then(|text| text.parse().ok().or_else(|| seconds(node)));
        if found.is_none() {
            p.expected(node, &self.path(name), "an age such as \"2d\"");
        }
        found
    }

    /// Takes regular expressions, each written as a text.
    pub(crate) fn expressions(
        &mut self,
        name: &'static str,
        p: &mut Problems,
    ) -> Option<Vec<Pattern>> {
        let node = self.take(name)?;
        let path = self.path(name);
        let found = members(node)
            .iter()
            .filter_map(|one| text(one, &path, p).and_then(|_| pattern(one, &path, p)));
        Some(found.collect())
    }

    /// Takes one regular expression, written as a text.
    pub(crate) fn expression(&mut self, name: &'static str, p: &mut Problems) -> Option<Pattern> {
        let node = self.take(name)?;
        let path = self.path(name);
        text(node, &path, p).and_then(|_| pattern(node, &path, p))
    }

    pub(crate) fn patterns(
        &mut self,
        name: &'static str,
        p: &mut Problems,
    ) -> Option<Vec<Pattern>> {
        let node = self.take(name)?;
        Some(patterns(node, &self.path(name), p))
    }

    /// Takes one of several words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
        p: &mut Problems,
    ) -> Option<T> {
        let node = self.take(name)?;
        let found = node.as_text().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let wrong = node.scalar_text().unwrap_or_else(|| node.kind().to_owned());
            let message = format!(
                "\"{wrong}\" is not one of {} for \"{}\"",
                known.join(", "),
                self.path(name)
            );
            p.add(
                Problem::new(ProblemKind::Syntax, node.start, node.end, message)
                    .about(&self.path(name))
                    .suggesting(&wrong, known),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// Takes variables: a mapping whose names Ansible accepts.
    pub(crate) fn variables(
        &mut self,
        name: &'static str,
        p: &mut Problems,
    ) -> Option<Map<String, Json>> {
        let node = self.take(name)?;
        variables(node, &self.path(name), p)
    }

    /// Takes a value that may say how it is combined with what was there before.
    pub(crate) fn combined<T>(
        &mut self,
        name: &'static str,
        p: &mut Problems,
        read: impl FnOnce(&Node, &str, &mut Problems) -> Option<T>,
    ) -> Option<Combined<T>> {
        let node = self.take(name)?;
        let (inner, combine) = untag(node);
        read(inner, &self.path(name), p).map(|value| Combined { value, combine })
    }

    /// Takes a mapping as JSON.
    pub(crate) fn mapping(
        &mut self,
        name: &'static str,
        p: &mut Problems,
    ) -> Option<Map<String, Json>> {
        let node = self.take(name)?;
        mapping(node, &self.path(name), p)
    }
}

/// Splits off `!override` or `!inherit`.
pub(crate) fn untag(node: &Node) -> (&Node, Option<Combine>) {
    match &node.value {
        Value::Tagged(tag, inner) if tag == "!override" => (inner, Some(Combine::Override)),
        Value::Tagged(tag, inner) if tag == "!inherit" => (inner, Some(Combine::Inherit)),
        _ => (node, None),
    }
}

/// Returns the members of a list; anything else is a list of one.
pub(crate) fn members(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(list) => list,
        _ => std::slice::from_ref(node),
    }
}

pub(crate) fn text(node: &Node, attribute: &str, p: &mut Problems) -> Option<String> {
    match node.as_text() {
        Some(text) => Some(text.to_owned()),
        None => {
            p.unquoted(
                node,
                format!("expected a string for \"{attribute}\", but found {}", node.kind()),
                attribute,
            );
            None
        }
    }
}

pub(crate) fn texts(node: &Node, attribute: &str, p: &mut Problems) -> Vec<String> {
    members(node).iter().filter_map(|member| text(member, attribute, p)).collect()
}

pub(crate) fn patterns(node: &Node, attribute: &str, p: &mut Problems) -> Vec<Pattern> {
    members(node).iter().filter_map(|member| pattern(member, attribute, p)).collect()
}

fn pattern(node: &Node, attribute: &str, p: &mut Problems) -> Option<Pattern> {
    let (text_of, negate) = match &node.value {
        Value::Text(text) => (text.clone(), false),
        Value::Map(_) => {
            let mut fields = Fields::of(node, attribute, p)?;
            let regex = fields.required_text("regex", p);
            let negate = fields.flag("negate", p).unwrap_or(false);
            fields.finish(p);
            (regex?, negate)
        }
        _ => {
            p.expected(node, attribute, "a regular expression");
            return None;
        }
    };
    match Pattern::with_negation(&text_of, negate) {
        Ok(pattern) => Some(pattern),
        Err(cause) => {
            p.syntax(node, attribute, cause.to_string());
            None
        }
    }
}

/// Reads a count from `least` to `most`.
pub(crate) fn count(
    node: &Node,
    attribute: &str,
    (least, most): (u32, u32),
    p: &mut Problems,
) -> Option<u32> {
    let is_low = match &node.value {
        Value::Int(number) => match u32::try_from(*number) {
            Ok(number) if (least..=most).contains(&number) => return Some(number),
            _ => *number < i64::from(least),
        },
        Value::Long(digits) => digits.starts_with('-'),
        _ => {
            p.expected(node, attribute, "an integer");
            return None;
        }
    };
    let bound = if is_low { format!("at least {least}") } else { format!("at most {most}") };
    p.syntax(node, attribute, format!("\"{attribute}\" must be {bound}"));
    None
}

/// Tells of a whole number that would not arrive as it was written: values travel as JSON, whose
/// integers here have 64 bits.
pub(crate) fn held(node: &Node, attribute: &str, p: &mut Problems) {
    if let Some(long) = node.first_unheld() {
        let message = format!(
            "an integer in \"{attribute}\" must be from {} to {}: put a longer one in quotes, and have the playbook make a number of it (the filter \"int\")",
            i64::MIN,
            u64::MAX
        );
        p.syntax(long, attribute, message);
    }
}

pub(crate) fn mapping(node: &Node, attribute: &str, p: &mut Problems) -> Option<Map<String, Json>> {
    held(node, attribute, p);
    match node.to_json() {
        Json::Object(map) if node.as_map().is_some() => Some(map),
        _ => {
            p.expected(node, attribute, "a mapping");
            None
        }
    }
}

/// Names that the system itself sets for every job (Z7.1).
const RESERVED: [&str; 5] = ["zuul", "nodepool", "zuul_node", "unsafe_vars", "zuul_user_dir"];

/// Names that say where, and through what, a playbook runs: with one of them a change could have
/// the executor run its own file with the rights of a trusted playbook (Z7.5).
const LOGIN: [&str; 5] = [
    "ansible_connection",
    "ansible_host",
    "ansible_python_interpreter",
    "ansible_shell_executable",
    "ansible_user",
];

pub(crate) fn variables(
    node: &Node,
    attribute: &str,
    p: &mut Problems,
) -> Option<Map<String, Json>> {
    let map = mapping(node, attribute, p)?;
    for (name, value) in node.as_map().unwrap_or_default() {
        let Some(text) = name.as_text() else {
            p.expected(name, attribute, "a variable's name");
            continue;
        };
        if ["zuul", "nodepool"].contains(&text) {
            p.syntax(
                value,
                attribute,
                format!(
                    "Variables named \"zuul\" or \"nodepool\" are not allowed in \"{attribute}\""
                ),
            );
        } else if RESERVED.contains(&text) || LOGIN.contains(&text) {
            p.syntax(
                value,
                attribute,
                format!("Variables named \"{text}\" are not allowed in \"{attribute}\": the executor sets it itself"),
            );
        } else if !is_variable_name(text) {
            p.syntax(
                name,
                attribute,
                format!("\"{text}\" is not a valid variable name for Ansible"),
            );
        }
        if let Some(tagged) = control_within(value) {
            let message = format!(
                "a control tag can only stand before all of \"{attribute}\", and not within it"
            );
            p.syntax(tagged, attribute, message);
        }
    }
    Some(map)
}

/// Returns the first value within another that says how it is combined: nobody would do so.
fn control_within(node: &Node) -> Option<&Node> {
    match &node.value {
        Value::Tagged(..) if untag(node).1.is_some() => Some(node),
        Value::Tagged(_, inner) => control_within(inner),
        Value::List(list) => list.iter().find_map(control_within),
        Value::Map(map) => map.iter().find_map(|(_, value)| control_within(value)),
        _ => None,
    }
}

/// Reads the name of a variable.
pub(crate) fn variable_name(node: &Node, attribute: &str, p: &mut Problems) -> Option<String> {
    let name = text(node, attribute, p)?;
    if is_variable_name(&name) {
        return Some(name);
    }
    let last = attribute.rsplit('.').next().unwrap_or(attribute);
    p.syntax(
        node,
        attribute,
        format!("\"{name}\" is not a valid variable name for Ansible, as \"{last}\" must be"),
    );
    None
}

/// Returns whether Ansible takes the text as a variable's name.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns a time in seconds: a whole number, or a text of a number and one of `s m h d w`.
pub(crate) fn seconds(node: &Node) -> Option<u64> {
    match &node.value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Text(text) => {
            let unit = text.chars().last()?;
            let factor = match unit {
                's' => 1,
                'm' => 60,
                'h' => 3_600,
                'd' => 86_400,
                'w' => 604_800,
                _ => return None,
            };
            text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(factor)
        }
        _ => None,
    }
}
