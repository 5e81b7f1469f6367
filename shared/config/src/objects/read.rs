//! Reads typed attributes from a mapping and collects the diagnostics.

use super::combine::{Combine, Combined};
use crate::Pattern;
use crate::error::{Diagnostic, DiagnosticKind, Severity};
use crate::yaml::{Mark, Node, Value};
use serde_json::{Map, Value as Json};

/// The diagnostics of one stanza.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    /// The diagnostics so far.
    pub(crate) list: Vec<Diagnostic>,
    /// The name of the stanza that is read.
    pub(crate) stanza: String,
    /// Where the stanza starts.
    pub(crate) start: Option<Mark>,
}

impl Diagnostics {
    /// Adds a diagnostic as one about the stanza being read: its own stanza and stanza line are
    /// overwritten. If no start is known, its line is kept.
    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        let diagnostic = diagnostic.in_stanza(&self.stanza);
        self.list.push(match self.start {
            Some(start) => diagnostic.from_stanza_at(start),
            None => diagnostic,
        });
    }

    /// Adds a syntax error about a value. `attribute` is the path of the value's attribute; an
    /// empty one names none.
    pub(crate) fn syntax(&mut self, node: &Node, attribute: &str, message: impl Into<String>) {
        let diagnostic = Diagnostic::new(DiagnosticKind::Syntax, node.start, node.end, message);
        self.add(if attribute.is_empty() { diagnostic } else { diagnostic.about(attribute) });
    }

    /// Adds a warning about a value that works, but is probably not intended. `attribute` is the
    /// path of its attribute.
    pub(crate) fn warning(&mut self, node: &Node, attribute: &str, message: impl Into<String>) {
        self.add(
            Diagnostic::new(DiagnosticKind::Syntax, node.start, node.end, message)
                .about(attribute)
                .as_warning(),
        );
    }

    /// Returns whether any of the diagnostics is an error, not a warning.
    pub(crate) fn any_error(&self) -> bool {
        self.list.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Adds `message` as a syntax error about a value that is not a text. If YAML reads a plain
    /// word (such as `yes` or `1.0`) that way, the error advises to quote it.
    pub(crate) fn unquoted(&mut self, node: &Node, message: String, attribute: &str) {
        let is_word = matches!(
            node.value,
            Value::Bool(_) | Value::Int(_) | Value::Long(_) | Value::Float(_) | Value::Date(_)
        );
        let advice = if is_word { "; YAML reads this word that way, so quote it" } else { "" };
        self.syntax(node, attribute, format!("{message}{advice}"));
    }

    /// Adds a syntax error that says what kind of value is expected (`what`), and which kind was
    /// found.
    pub(crate) fn expected(&mut self, node: &Node, attribute: &str, what: &str) {
        self.syntax(
            node,
            attribute,
            format!("expected {what} for \"{attribute}\", but found {}", node.kind()),
        );
    }
}

/// A mapping whose attributes are taken one by one. [`Fields::finish`] reports those that were not
/// taken.
pub(crate) struct Fields<'n> {
    /// The mapping.
    node: &'n Node,
    /// The attributes that were not taken, each with its name, key and value.
    left: Vec<(&'n str, &'n Node, &'n Node)>,
    /// The attribute names that were requested.
    requested: Vec<&'static str>,
    /// The names of the mappings around this one.
    prefix: String,
    /// Whether any requested attribute was present.
    given: bool,
}

impl<'n> Fields<'n> {
    /// Returns the fields of a mapping; `None`, with an error, for other values. Keys that are no
    /// text are errors and left out. `prefix` is how paths in errors begin: the name of the
    /// mapping, empty for a stanza.
    pub(crate) fn of(node: &'n Node, prefix: &str, p: &mut Diagnostics) -> Option<Self> {
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
        Some(Self { node, left, requested: Vec::new(), prefix: prefix.to_owned(), given: false })
    }

    /// Returns the mapping whose fields these are.
    pub(crate) fn node(&self) -> &'n Node {
        self.node
    }

    /// Returns whether an attribute is present and not yet taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(key, ..)| *key == name)
    }

    /// Returns the value of an attribute without taking it; `None` if it is absent or already
    /// taken. The attribute does not count as known.
    pub(crate) fn peek(&self, name: &str) -> Option<&'n Node> {
        self.left.iter().find(|(key, ..)| *key == name).map(|(.., value)| *value)
    }

    /// Returns the keys that are not yet taken, in the order as written.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'n Node> {
        self.left.iter().map(|(_, key, _)| *key)
    }

    /// Returns the attributes that are not yet taken, each with its name, key and value, in the
    /// order as written.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'n str, &'n Node, &'n Node)> {
        self.left.iter().copied()
    }

    /// Returns the name of an attribute after the names of the mappings around it, with dots
    /// between them.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    /// Takes the value of an attribute out of the mapping; `None` if it is absent or already taken.
    /// In both cases the attribute counts as known: [`Fields::finish`] may suggest its name. A null
    /// is a value: the attribute is then present.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.requested.push(name);
        let at = self.left.iter().position(|(key, ..)| *key == name)?;
        self.given = true;
        Some(self.left.remove(at).2)
    }

    /// Takes the value of an attribute out of the mapping. Without it, adds an error and returns
    /// `None`.
    pub(crate) fn required(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<&'n Node> {
        let node = self.take(name);
        if node.is_none() {
            p.syntax(self.node, &self.path(name), format!("required key not provided: \"{name}\""));
        }
        node
    }

    /// Takes an attribute that has several names, and returns the name it has here with its value;
    /// `None` if none is present. If several are present, all are taken, the first in `names`
    /// counts, and the others are errors.
    pub(crate) fn one_of(
        &mut self,
        names: &[&'static str],
        p: &mut Diagnostics,
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
                        format!("\"{name}\" is another name for \"{first}\"; use only one of them"),
                    );
                }
            }
        }
        found
    }

    /// Returns whether any attribute was present when it was taken by its name; [`Fields::rest`]
    /// does not count.
    pub(crate) fn has_been_given(&self) -> bool {
        self.given
    }

    /// Takes all remaining attributes, and returns each with its name, in the order as written.
    /// [`Fields::finish`] then reports none.
    pub(crate) fn rest(&mut self) -> Vec<(&'n str, &'n Node)> {
        std::mem::take(&mut self.left).into_iter().map(|(name, _, value)| (name, value)).collect()
    }

    /// Reports the remaining attributes as unknown, each as an error that suggests a similar name
    /// of those that were requested.
    pub(crate) fn finish(self, p: &mut Diagnostics) {
        for (name, key, _) in &self.left {
            let diagnostic = Diagnostic::new(
                DiagnosticKind::Syntax,
                key.start,
                key.end,
                format!("extra keys not allowed: \"{name}\" is not an attribute here"),
            )
            .about(&self.path(name))
            .suggesting(name, self.requested.iter().copied());
            p.add(diagnostic);
        }
    }

    /// Takes a text attribute out of the mapping; `None` if it is absent, or, with an error, not a
    /// text.
    pub(crate) fn text(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<String> {
        let node = self.take(name)?;
        text(node, &self.path(name), p)
    }

    /// Takes a required text attribute out of the mapping; `None`, with an error, if it is absent
    /// or not a text. It may be empty.
    pub(crate) fn required_text(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<String> {
        let node = self.required(name, p)?;
        text(node, &self.path(name), p)
    }

    /// Takes a required name out of the mapping; `None`, with an error, if it is absent, blank or
    /// not a text.
    pub(crate) fn required_name(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<String> {
        let node = self.required(name, p)?;
        let found = text(node, &self.path(name), p)?;
        if !found.trim().is_empty() {
            return Some(found);
        }
        p.syntax(node, &self.path(name), format!("\"{}\" must not be empty", self.path(name)));
        None
    }

    /// Takes a boolean attribute out of the mapping; `None` if it is absent, or, with an error,
    /// another value.
    pub(crate) fn flag(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<bool> {
        let node = self.take(name)?;
        match node.value {
            Value::Bool(flag) => Some(flag),
            _ => {
                p.expected(node, &self.path(name), "a boolean");
                None
            }
        }
    }

    /// Takes an integer attribute, from `least` to `u32::MAX`, out of the mapping; `None` if it is
    /// absent, or, with an error, another value.
    pub(crate) fn count(
        &mut self,
        name: &'static str,
        least: u32,
        p: &mut Diagnostics,
    ) -> Option<u32> {
        let node = self.take(name)?;
        count(node, &self.path(name), (least, u32::MAX), p)
    }

    /// Takes a port number, from 1 to 65535, out of the mapping; `None` if it is absent, or, with
    /// an error, another value.
    pub(crate) fn port(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<u32> {
        let node = self.take(name)?;
        count(node, &self.path(name), (1, u16::MAX.into()), p)
    }

    /// Takes a duration out of the mapping and returns it in seconds: a number of seconds, or a
    /// text of a number with one of the units `s m h d w`, such as `30m`. `None` if it is absent,
    /// or, with an error, another value.
    pub(crate) fn seconds(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<u64> {
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

    /// Takes a list of texts out of the mapping; `None` if it is absent. A single text is a list of
    /// one. Members that are no text are errors and left out.
    pub(crate) fn texts(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<Vec<String>> {
        let node = self.take(name)?;
        Some(texts(node, &self.path(name), p))
    }

    /// Takes a list of texts out of the mapping; `None` if it is absent, or, with an error, another
    /// value, also a single text. Members that are no text are errors and left out.
    pub(crate) fn text_list(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
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

    /// Takes a version, a text or a number, out of the mapping, as text ([`Node::scalar_text`]);
    /// `None` if it is absent, or, with an error, another value.
    pub(crate) fn version(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<String> {
        let node = self.take(name)?;
        match node.value {
            Value::Text(_) | Value::Int(_) | Value::Long(_) | Value::Float(_) => node.scalar_text(),
            _ => {
                p.expected(node, &self.path(name), "a string or number");
                None
            }
        }
    }

    /// Takes an age out of the mapping and returns it in seconds: a text with a number and an
    /// optional unit `s m h d w`. `None` if it is absent, or, with an error, another value, also a
    /// number without quotes.
    pub(crate) fn age(&mut self, name: &'static str, p: &mut Diagnostics) -> Option<u64> {
        let node = self.take(name)?;
        let found = node.as_text().and_then(|text| text.parse().ok().or_else(|| seconds(node)));
        if found.is_none() {
            p.expected(node, &self.path(name), "an age such as \"2d\"");
        }
        found
    }

    /// Takes a list of regular expressions, each written as a text, out of the mapping; a single
    /// one is a list of one. `None` if the attribute is absent. Invalid ones are errors and left
    /// out.
    pub(crate) fn expressions(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<Vec<Pattern>> {
        let node = self.take(name)?;
        let path = self.path(name);
        let found = members(node)
            .iter()
            .filter_map(|one| text(one, &path, p).and_then(|_| pattern(one, &path, p)));
        Some(found.collect())
    }

    /// Takes a regular expression, written as a text, out of the mapping; `None` if it is absent,
    /// or, with an error, invalid.
    pub(crate) fn expression(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<Pattern> {
        let node = self.take(name)?;
        let path = self.path(name);
        text(node, &path, p).and_then(|_| pattern(node, &path, p))
    }

    /// Takes a list of patterns, each a text or a mapping with `regex` and `negate`, out of the
    /// mapping; a single one is a list of one. `None` if the attribute is absent. Invalid ones are
    /// errors and left out.
    pub(crate) fn patterns(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<Vec<Pattern>> {
        let node = self.take(name)?;
        Some(patterns(node, &self.path(name), p))
    }

    /// Takes one of several keywords out of the mapping and returns its value in `words`; `None` if
    /// it is absent, or, with an error that suggests a similar one, another word.
    pub(crate) fn word<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
        p: &mut Diagnostics,
    ) -> Option<T> {
        let node = self.take(name)?;
        let found = node.as_text().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let keywords: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let wrong = node.scalar_text().unwrap_or_else(|| node.kind().to_owned());
            let message = format!(
                "\"{wrong}\" is not one of {} for \"{}\"",
                keywords.join(", "),
                self.path(name)
            );
            p.add(
                Diagnostic::new(DiagnosticKind::Syntax, node.start, node.end, message)
                    .about(&self.path(name))
                    .suggesting(&wrong, keywords),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// Takes variables out of the mapping; `None` if they are absent, or, with an error, not a
    /// mapping. Names that Ansible does not accept or the executor sets itself, control tags within
    /// values, and integers beyond 64 bits are errors, but returned.
    pub(crate) fn variables(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<Map<String, Json>> {
        let node = self.take(name)?;
        variables(node, &self.path(name), p)
    }

    /// Takes a value that may have the control tag `!override` or `!inherit` out of the mapping,
    /// and returns it with the tag; `None` if it is absent or `read` returns none. `read` gets the
    /// value without the tag, the attribute's path and `p`.
    pub(crate) fn combined<T>(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
        read: impl FnOnce(&Node, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<Combined<T>> {
        let node = self.take(name)?;
        let (inner, combine) = untag(node);
        read(inner, &self.path(name), p).map(|value| Combined { value, combine })
    }

    /// Takes a mapping out of this mapping, as JSON; `None` if it is absent, or, with an error, not
    /// a mapping. An integer beyond 64 bits is an error, but returned as a text.
    pub(crate) fn mapping(
        &mut self,
        name: &'static str,
        p: &mut Diagnostics,
    ) -> Option<Map<String, Json>> {
        let node = self.take(name)?;
        mapping(node, &self.path(name), p)
    }
}

/// Returns a value without its tag `!override` or `!inherit`, and what the tag says; `None` without
/// such a tag.
pub(crate) fn untag(node: &Node) -> (&Node, Option<Combine>) {
    match &node.value {
        Value::Tagged(tag, inner) if tag == "!override" => (inner, Some(Combine::Override)),
        Value::Tagged(tag, inner) if tag == "!inherit" => (inner, Some(Combine::Inherit)),
        _ => (node, None),
    }
}

/// Returns the members of a list; any other value is a list of one.
pub(crate) fn members(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(list) => list,
        _ => std::slice::from_ref(node),
    }
}

/// Reads a text; `None`, with an error, for any other value.
pub(crate) fn text(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<String> {
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

/// Reads a list of texts; a single text is a list of one. Members that are no text are errors and
/// left out.
pub(crate) fn texts(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<String> {
    members(node).iter().filter_map(|member| text(member, attribute, p)).collect()
}

/// Reads a list of patterns, each a text or a mapping with `regex` and `negate`; a single one is a
/// list of one. Invalid ones are errors and left out.
pub(crate) fn patterns(node: &Node, attribute: &str, p: &mut Diagnostics) -> Vec<Pattern> {
    members(node).iter().filter_map(|member| pattern(member, attribute, p)).collect()
}

/// Reads a pattern: a text, or a mapping with `regex` and `negate`. `None`, with an error, if it is
/// invalid.
fn pattern(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<Pattern> {
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
    let parsed = if negate { Pattern::negated(&text_of) } else { Pattern::new(&text_of) };
    match parsed {
        Ok(pattern) => Some(pattern),
        Err(cause) => {
            p.syntax(node, attribute, cause.to_string());
            None
        }
    }
}

/// Reads an integer from `least` to `most`, both included; `None`, with an error, for any other
/// value.
pub(crate) fn count(
    node: &Node,
    attribute: &str,
    (least, most): (u32, u32),
    p: &mut Diagnostics,
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

/// Reports an error at the first integer in the value, at any depth, that JSON would not preserve:
/// values are stored as JSON with 64-bit integers. Further ones, and keys, are not reported.
pub(crate) fn check_integer_range(node: &Node, attribute: &str, p: &mut Diagnostics) {
    if let Some(long) = node.first_unheld() {
        let message = format!(
            "an integer in \"{attribute}\" must be from {} to {}: quote a larger one and convert \
             it in the playbook (filter \"int\")",
            i64::MIN,
            u64::MAX
        );
        p.syntax(long, attribute, message);
    }
}

/// Reads a mapping as JSON; `None`, with an error, for any other value, also a tagged mapping. An
/// integer beyond 64 bits is an error, but returned as a text.
pub(crate) fn mapping(
    node: &Node,
    attribute: &str,
    p: &mut Diagnostics,
) -> Option<Map<String, Json>> {
    check_integer_range(node, attribute, p);
    match node.to_json() {
        Json::Object(map) if node.as_map().is_some() => Some(map),
        _ => {
            p.expected(node, attribute, "a mapping");
            None
        }
    }
}

/// Variables that the executor sets for every job (Z7.1).
const RESERVED: [&str; 5] = ["zuul", "nodepool", "zuul_node", "unsafe_vars", "zuul_user_dir"];

/// Variables that control where and how a playbook runs. With them a change could make the executor
/// run its own file with the privileges of a trusted playbook (Z7.5).
const LOGIN: [&str; 5] = [
    "ansible_connection",
    "ansible_host",
    "ansible_python_interpreter",
    "ansible_shell_executable",
    "ansible_user",
];

/// Variables that Ansible itself sets and that extra variables would override: then a trusted
/// playbook that names a directory by its host, for example, would write elsewhere (Z7.5).
const OF_ANSIBLE: [&str; 18] = [
    "ansible_parent_role_names",
    "ansible_parent_role_paths",
    "group_names",
    "groups",
    "hostvars",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "omit",
    "parent_role_names",
    "parent_role_paths",
    "play_hosts",
    "playbook_dir",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
];

/// Reads variables; `None`, with an error, if they are not a mapping. Names that Ansible does not
/// accept or the executor sets itself, in extra variables also names that Ansible sets, control tags
/// within the values, and integers beyond 64 bits are errors, but returned.
pub(crate) fn variables(
    node: &Node,
    attribute: &str,
    p: &mut Diagnostics,
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
                format!(
                    "Variables named \"{text}\" are not allowed in \"{attribute}\": the \
                         executor sets this variable itself"
                ),
            );
        } else if OF_ANSIBLE.contains(&text) && attribute.ends_with("extra-vars") {
            p.syntax(
                value,
                attribute,
                format!(
                    "Variables named \"{text}\" are not allowed in \"{attribute}\": Ansible \
                         sets this variable itself"
                ),
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
                "a control tag can only be applied to \"{attribute}\" as a whole, not to a value \
                 in it"
            );
            p.syntax(tagged, attribute, message);
        }
    }
    Some(map)
}

/// Returns the first control tag (`!override`, `!inherit`) in a value, at any depth, where it has
/// no meaning; `None` if there is none.
fn control_within(node: &Node) -> Option<&Node> {
    match &node.value {
        Value::Tagged(..) if untag(node).1.is_some() => Some(node),
        Value::Tagged(_, inner) => control_within(inner),
        Value::List(list) => list.iter().find_map(control_within),
        Value::Map(map) => map.iter().find_map(|(_, value)| control_within(value)),
        _ => None,
    }
}

/// Reads the name of a variable; `None`, with an error, if it is not a text or Ansible does not
/// accept it.
pub(crate) fn variable_name(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<String> {
    let name = text(node, attribute, p)?;
    if is_variable_name(&name) {
        return Some(name);
    }
    let last = attribute.rsplit('.').next().unwrap_or(attribute);
    p.syntax(
        node,
        attribute,
        format!("\"{name}\" is not a valid variable name for Ansible, which \"{last}\" requires"),
    );
    None
}

/// Returns whether a text is a valid Ansible variable name.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns a duration in seconds: an integer, or a text of a number with one of the units `s m h d
/// w`. `None` for any other value, also a text without a unit and a negative number; reports
/// nothing.
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
