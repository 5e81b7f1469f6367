//! Composes parser events into a tree: anchors, merge keys, duplicate keys, tags, and limits on the
//! size.

use super::scalar::{self, Kind};
use super::{Mark, Node, UNREADABLE, Value, YamlError};
use libyaml_safer::{Event, EventData, Parser};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum nesting of lists and mappings.
const DEPTH_MAX: usize = 100;
/// The limits of configuration.
const LIMITS: SizeLimits = SizeLimits { nodes: 1_000_000, text_bytes: 64 << 20 };

/// The error message if the YAML parser panics.
const GAVE_UP: &str =
    "the text cannot be parsed from here: a tag without a following space, or an invalid escape";

/// Maximum number of errors reported for one text, besides the one that ends it.
const NOTED_MAX: usize = 100;

const STANDARD: &str = "tag:yaml.org,2002:";

/// How much a document may hold, with what its aliases repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// The number of values, keys included.
    pub nodes: usize,
    /// The bytes of its texts.
    pub text_bytes: usize,
}

/// Returns the document of a text; an empty text is a null. As in PyYAML, the last value of a
/// duplicate key wins. The error is the first one found: syntax, an undefined alias, an unknown
/// tag, a second document, or too much nesting or size.
pub fn compose(text: &str) -> Result<Node, YamlError> {
    compose_within(text, LIMITS)
}

/// Returns the document of a text as [`compose`] does, but with the given limits on its size.
pub fn compose_within(text: &str, limits: SizeLimits) -> Result<Node, YamlError> {
    sound(document(text, Repeated::LastCounts, limits))
}

/// Returns the document of a text as Zuul reads configuration: like [`compose`], but a duplicate
/// key is an error, since one of the values would be ignored.
pub fn compose_once(text: &str) -> Result<Node, YamlError> {
    sound(document(text, Repeated::Refused, LIMITS))
}

/// Returns the document as [`compose_once`] reads it, and every error instead of the first; at most
/// about a hundred. With errors, the document may only be searched for further errors: it is what
/// could be read, without members of its list that use an undefined alias. It is `None` if reading
/// stopped in a document that is not a list. Nothing is read after an invalid character.
pub fn compose_all(text: &str) -> (Option<Node>, Vec<YamlError>) {
    document(text, Repeated::Refused, LIMITS)
}

/// Returns the document if it has no errors, else the first error. The input is the result of
/// `document`: the document, if any, and all errors.
fn sound((root, mistakes): (Option<Node>, Vec<YamlError>)) -> Result<Node, YamlError> {
    match (mistakes.into_iter().next(), root) {
        (None, Some(root)) => Ok(root),
        (Some(error_found), _) => Err(error_found),
        (None, None) => Err(error(Mark(1, 1), "there is no document")),
    }
}

/// The treatment of duplicate keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    LastCounts,
    Refused,
}

/// Returns the document of a text, and its errors, as [`compose_all`] does. With `repeated`
/// `Refused`, duplicate keys are errors; otherwise the last value counts. Of a text with an invalid
/// character, the document has only the complete members of its list in the lines above it; without
/// such a list it is `None`.
fn document(text: &str, repeated: Repeated, limits: SizeLimits) -> (Option<Node>, Vec<YamlError>) {
    let Some(error) = unreadable(text) else {
        let Read { root, mut noted, broken } = read(text, repeated, limits);
        noted.extend(broken);
        return (root, noted);
    };
    // The text has an invalid character. The lines before it are searched for errors, except for
    // what may continue after them: the last list member, and errors caused by the cut.
    let lines = text.split_inclusive('\n').take(error.mark.line().saturating_sub(1) as usize);
    let above: usize = lines.map(str::len).sum();
    let Read { root, mut noted, broken } =
        read(text.get(..above).unwrap_or_default(), repeated, limits);
    noted.push(error);
    let Some(Node { value: Value::List(mut list), start, end }) = root else {
        return (None, noted);
    };
    if broken.is_none() {
        list.pop();
    }
    (Some(Node { value: Value::List(list), start, end }), noted)
}

/// The result of reading a text.
struct Read {
    /// The document, or its complete part if reading stopped.
    root: Option<Node>,
    /// Errors that did not stop reading.
    noted: Vec<YamlError>,
    /// The error that stopped reading.
    broken: Option<YamlError>,
}

/// Reads a text until its end or the first error that stops reading. The caller has checked that it
/// has no invalid character. Returns the document or, if reading stopped, what is complete: the
/// members of its list, or the whole document if another one follows, or nothing. Also returns the
/// errors that did not stop reading, and the one that did.
fn read(text: &str, repeated: Repeated, limits: SizeLimits) -> Read {
    let mut input = text.as_bytes();
    let mut parser = Parser::new();
    parser.set_input_string(&mut input);
    let mut composer = Composer {
        parser,
        repeated,
        limits,
        anchors: HashMap::new(),
        unknown_aliases: HashSet::new(),
        is_whole: true,
        nodes: 0,
        text_bytes: 0,
        reached: Mark(1, 1),
        noted: Vec::new(),
        above: None,
    };
    let (root, broken) = match composer.document() {
        Ok(root) => (Some(root), None),
        Err(broken) => (composer.above.take(), Some(broken)),
    };
    Read { root, noted: composer.noted, broken }
}

/// Returns an error at the first character that YAML does not allow, with its position, which the
/// parser would not report; `None` if there is none. The character for bytes that are not UTF-8
/// ([`UNREADABLE`]) has a message of its own.
fn unreadable(text: &str) -> Option<YamlError> {
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    let at = text.find(|c| !is_allowed(c))?;
    let (before, rest) = text.split_at(at);
    let line = before.split('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let clip = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let message = match rest.chars().next()? {
        UNREADABLE => "this is not UTF-8, the encoding that configuration is written in".to_owned(),
        c => format!(
            "the character U+{:04X} is not allowed here; write it as \"\\u{:04x}\" in double \
             quotes",
            u32::from(c),
            u32::from(c)
        ),
    };
    Some(error(Mark(clip(line), clip(column)), message))
}

struct Composer<'a, 'b> {
    /// The parser of the text.
    parser: Parser<&'a mut &'b [u8]>,
    /// Whether duplicate keys are errors.
    repeated: Repeated,
    /// How much the document may hold.
    limits: SizeLimits,
    /// The anchors so far.
    anchors: HashMap<String, Anchor>,
    /// The positions of aliases whose value is unknown.
    unknown_aliases: HashSet<Mark>,
    /// Whether the current member of the document's list has no unknown alias so far.
    is_whole: bool,
    /// The number of values so far, including those that aliases repeat.
    nodes: usize,
    /// The bytes of text so far, including those that aliases repeat.
    text_bytes: usize,
    /// The end of the latest event.
    reached: Mark,
    /// Errors that did not stop reading, at most one per position.
    noted: Vec<YamlError>,
    /// The complete part of the document if reading stopped: the list of complete members.
    above: Option<Node>,
}

/// The state of an anchor.
enum Anchor {
    /// Its node is not complete.
    Open,
    /// Its complete node and its size.
    Read(Node, Size),
    /// The anchor is defined twice, or its value may contain an unknown alias.
    Ambiguous,
}

/// The size of a node, which counts for each repetition.
#[derive(Clone, Copy)]
struct Size {
    /// The number of values.
    nodes: usize,
    /// The bytes of text.
    text_bytes: usize,
}

/// A complete node, and whether it is a merge key.
struct Composed {
    /// The value.
    node: Node,
    /// Whether it is the key `<<`.
    merge: bool,
}

/// Returns an error at a position.
fn error(mark: Mark, message: impl Into<String>) -> YamlError {
    YamlError { mark, message: message.into() }
}

/// Converts a position of the parser, which counts from 0, to one that counts from 1.
fn mark(place: libyaml_safer::Mark) -> Mark {
    let clip = |number: u64| u32::try_from(number).unwrap_or(u32::MAX - 1) + 1;
    Mark(clip(place.line), clip(place.column))
}

impl Composer<'_, '_> {
    /// Returns the parser's next event, or its error with a position. A panic of the parser is an
    /// error, too. After an error the parser must not be used again.
    fn event(&mut self) -> Result<Event, YamlError> {
        // The parser panics on some invalid texts, for example `[!tag, a]`. A file must not stop a
        // function, so the panic is caught and the parser is not used again.
        let event = catch_unwind(AssertUnwindSafe(|| self.parser.parse()));
        let event = event.map_err(|_| error(self.reached, GAVE_UP))?;
        let event = event.map_err(|cause| {
            let place = cause.problem_mark().or(cause.context_mark()).map_or(Mark(1, 1), mark);
            let context = cause.context().filter(|context| !context.is_empty());
            match context {
                Some(context) => error(place, format!("{}, {}", context, cause.problem())),
                None => error(place, cause.problem()),
            }
        })?;
        self.reached = mark(event.end_mark);
        Ok(event)
    }

    /// Reads the only document of the text; an empty text is a null. An error if reading stops, or
    /// if another document follows; the complete part is then in `above`, if it is a list or a
    /// whole document. Errors that do not stop reading are in `noted`.
    fn document(&mut self) -> Result<Node, YamlError> {
        self.event()?;
        let first = self.event()?;
        if first.data == EventData::StreamEnd {
            let place = mark(first.start_mark);
            return Ok(Node { value: Value::Null, start: place, end: place });
        }
        let event = self.event()?;
        let root = self.node(event, 0)?.node;
        match self.end() {
            Ok(()) => Ok(root),
            Err(broken) => {
                self.above = Some(root);
                Err(broken)
            }
        }
    }

    /// Reads the end of the document and of the stream. An error if another document follows.
    fn end(&mut self) -> Result<(), YamlError> {
        self.event()?;
        let next = self.event()?;
        match next.data {
            EventData::StreamEnd => Ok(()),
            _ => Err(error(
                mark(next.start_mark),
                "expected a single document in the stream, but found another document",
            )),
        }
    }

    /// Records an error that does not stop reading. Drops it if one is recorded at the same
    /// position, or if an unknown alias is there. Once [`NOTED_MAX`] are recorded, returns it
    /// instead, which stops reading.
    fn note(&mut self, error_found: YamlError) -> Result<(), YamlError> {
        if self.noted.len() >= NOTED_MAX {
            return Err(error_found);
        }
        // An error that follows from this one, or from an unknown alias, is not reported.
        if !self.unknown_aliases.contains(&error_found.mark)
            && !self.noted.iter().any(|noted| noted.mark == error_found.mark)
        {
            self.noted.push(error_found);
        }
        Ok(())
    }

    /// Returns the value of `read`. If that is an error, records it and returns the value
    /// `instead`, which is then no merge key. An error, which stops reading, if too many are
    /// recorded.
    fn or_instead(
        &mut self,
        read: Result<Composed, YamlError>,
        instead: Node,
    ) -> Result<Composed, YamlError> {
        match read {
            Ok(composed) => Ok(composed),
            Err(error_found) => {
                self.note(error_found)?;
                Ok(Composed { node: instead, merge: false })
            }
        }
    }

    /// Adds values and bytes of text, including those that aliases repeat, to the counts of the
    /// document. An error at `place` if the document then has more of either than its limits
    /// allow.
    fn count(&mut self, more: usize, text_bytes: usize, place: Mark) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(more);
        self.text_bytes = self.text_bytes.saturating_add(text_bytes);
        let SizeLimits { nodes, text_bytes } = self.limits;
        if self.text_bytes > text_bytes {
            let message = format!(
                "its texts have more than {text_bytes} bytes, those repeated by aliases \
                 included"
            );
            return Err(error(place, message));
        }
        if self.nodes > nodes {
            return Err(error(
                place,
                format!("it has more than {nodes} values, those repeated by aliases included"),
            ));
        }
        Ok(())
    }

    /// Reads the whole value that starts with an event; an alias becomes a copy of its value.
    /// `depth` is the number of lists and mappings around it. A wrong tag is recorded as an error,
    /// and the value becomes a text, an empty list or an empty mapping. An anchored value is stored
    /// for later aliases. An error, which stops reading, for wrong syntax and too much nesting or
    /// size.
    fn node(&mut self, event: Event, depth: usize) -> Result<Composed, YamlError> {
        let start = mark(event.start_mark);
        let end = mark(event.end_mark);
        if depth > DEPTH_MAX {
            return Err(error(start, format!("it is nested more than {DEPTH_MAX} deep")));
        }
        let before = Size { nodes: self.nodes, text_bytes: self.text_bytes };
        let (anchor, composed) = match event.data {
            EventData::Alias { anchor } => return self.alias(&anchor, start),
            EventData::Scalar { anchor, tag, value, plain_implicit, .. } => {
                self.count(1, value.len(), start)?;
                self.open(&anchor, start)?;
                let read = scalar_node(tag, &value, plain_implicit, start, end);
                (anchor, self.or_instead(read, Node { value: Value::Text(value), start, end })?)
            }
            EventData::SequenceStart { anchor, tag, .. } => {
                self.count(1, 0, start)?;
                self.open(&anchor, start)?;
                let (list, end) = self.sequence(depth, start)?;
                let read = tagged(tag, "seq", Node { value: Value::List(list), start, end });
                (
                    anchor,
                    self.or_instead(read, Node { value: Value::List(Vec::new()), start, end })?,
                )
            }
            EventData::MappingStart { anchor, tag, .. } => {
                self.count(1, 0, start)?;
                self.open(&anchor, start)?;
                let (map, end) = self.mapping(depth)?;
                let read = tagged(tag, "map", Node { value: Value::Map(map), start, end });
                (anchor, self.or_instead(read, Node { value: Value::Map(Vec::new()), start, end })?)
            }
            _ => return Err(error(start, "a value was expected here")),
        };
        if let Some(anchor) = anchor {
            let size = Size {
                nodes: self.nodes - before.nodes,
                text_bytes: self.text_bytes - before.text_bytes,
            };
            self.close(anchor, &composed.node, size)?;
        }
        Ok(composed)
    }

    /// Notes that the value of an anchor begins, so that an alias within it is an error. A repeated
    /// anchor is recorded as an error, and its later aliases become null. Does nothing without an
    /// anchor. An error, which stops reading, if too many are recorded.
    fn open(&mut self, anchor: &Option<String>, place: Mark) -> Result<(), YamlError> {
        let Some(anchor) = anchor else { return Ok(()) };
        if self.anchors.insert(anchor.clone(), Anchor::Open).is_none() {
            return Ok(());
        }
        self.anchors.insert(anchor.clone(), Anchor::Ambiguous);
        self.note(error(place, format!("found duplicate anchor \"{anchor}\"")))
    }

    /// Stores the value of an anchor, and its size, for later aliases. If the anchor is repeated,
    /// or an unknown alias may be in the value, its later aliases become null instead. An error if
    /// the document becomes too large.
    fn close(&mut self, anchor: String, node: &Node, size: Size) -> Result<(), YamlError> {
        if !matches!(self.anchors.get(&anchor), Some(Anchor::Open)) {
            return Ok(());
        }
        if !self.is_whole {
            self.anchors.insert(anchor, Anchor::Ambiguous);
            return Ok(());
        }
        // The copy for the anchor counts as well.
        self.count(size.nodes, size.text_bytes, node.start)?;
        self.anchors.insert(anchor, Anchor::Read(node.clone(), size));
        Ok(())
    }

    /// Returns a copy of the value of an anchor. An alias that is undefined or within its own
    /// anchor is recorded as an error and becomes null. It also becomes null, without an error, if
    /// its anchor is ambiguous. After such a null, the member of the document's list that contains
    /// it is left out. An error if the document becomes too large.
    fn alias(&mut self, anchor: &str, place: Mark) -> Result<Composed, YamlError> {
        if let Some(Anchor::Read(_, size)) = self.anchors.get(anchor) {
            // Count it before copying.
            let size = *size;
            self.count(size.nodes, size.text_bytes, place)?;
        }
        let why = match self.anchors.get(anchor) {
            Some(Anchor::Read(node, _)) => {
                return Ok(Composed { node: node.clone(), merge: false });
            }
            Some(Anchor::Open) => {
                Some(format!("the alias \"{anchor}\" stands within its own anchor"))
            }
            // The error is reported where the anchor became ambiguous.
            Some(Anchor::Ambiguous) => None,
            None => Some(format!("found undefined alias \"{anchor}\"")),
        };
        if let Some(message) = why {
            self.note(error(place, message))?;
        }
        self.count(1, 0, place)?;
        self.unknown_aliases.insert(place);
        self.is_whole = false;
        Ok(Composed { node: Node { value: Value::Null, start: place, end: place }, merge: false })
    }

    /// Reads the members of a list up to its end, and returns them with its end. `depth` is the
    /// number of lists and mappings around the list, `start` its start. Members of the document's
    /// list (`depth` 0) that use an unknown alias are left out. If reading stops within the
    /// document's list, the complete members are in `above`.
    fn sequence(&mut self, depth: usize, start: Mark) -> Result<(Vec<Node>, Mark), YamlError> {
        let mut list: Vec<Node> = Vec::new();
        let broken = loop {
            let read = match self.event() {
                Ok(event) if event.data == EventData::SequenceEnd => {
                    let last = list.last().map(|node| node.end);
                    return Ok((list, end_of(&event, last)));
                }
                Ok(event) => self.node(event, depth + 1),
                Err(broken) => Err(broken),
            };
            match read {
                Ok(member) if depth > 0 || self.is_whole => list.push(member.node),
                // Its content is unknown and not checked.
                Ok(_) => self.is_whole = true,
                Err(broken) => break broken,
            }
        };
        if depth == 0 {
            self.above = Some(Node { value: Value::List(list), start, end: self.reached });
        }
        Err(broken)
    }

    /// Reads the members of a mapping up to its end, and returns them with its end. `<<` is merged:
    /// the mapping's own keys win. The last value of a duplicate key counts; where that is refused,
    /// it is also recorded as an error. A list or mapping as a key, and a wrong value of `<<`, are
    /// recorded as errors and left out.
    fn mapping(&mut self, depth: usize) -> Result<(Vec<(Node, Node)>, Mark), YamlError> {
        let mut merged: Vec<(Node, Node)> = Vec::new();
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        let mut last = None;
        let mut keys: HashMap<String, Mark> = HashMap::new();
        loop {
            let event = self.event()?;
            if event.data == EventData::MappingEnd {
                merged.extend(pairs);
                return Ok((unique(merged), end_of(&event, last)));
            }
            let key = self.node(event, depth + 1)?;
            if self.repeated == Repeated::Refused
                && !key.merge
                && !self.unknown_aliases.contains(&key.node.start)
                && let Some(first) = keys.insert(identity(&key.node), key.node.start)
            {
                let name = key.node.scalar_text().unwrap_or_default();
                let message = format!(
                    "the key \"{name}\" appears more than once in one mapping, first at line {}: \
                     only one of them would count",
                    first.line()
                );
                self.note(error(key.node.start, message))?;
            }
            let event = self.event()?;
            let value = self.node(event, depth + 1)?.node;
            last = Some(value.end.max(key.node.end));
            if key.merge {
                match pairs_to_merge(value) {
                    Ok(pairs) => merged.extend(pairs),
                    Err(error_found) => self.note(error_found)?,
                }
                continue;
            }
            if matches!(key.node.value, Value::List(_) | Value::Map(_)) {
                let message = format!("found unhashable key: {} cannot be a key", key.node.kind());
                self.note(error(key.node.start, message))?;
                continue;
            }
            pairs.push((key.node, value));
        }
    }
}

/// Returns the end of a list or mapping. `event` is its end event, and `last` the end of its last
/// member, if any. In block style the result is `last`, not the start of the next token.
fn end_of(event: &Event, last: Option<Mark>) -> Mark {
    let end = mark(event.end_mark);
    let is_closed = event.start_mark.line != event.end_mark.line
        || event.start_mark.column != event.end_mark.column;
    if is_closed { end } else { last.unwrap_or(end) }
}

/// Returns the pairs that the value of `<<` merges, in an order in which later pairs win: of a list
/// of mappings, earlier mappings win, so they come last. Duplicate keys stay. A control tag
/// (`!override`, `!inherit`) is ignored. Any other value is an error.
fn pairs_to_merge(node: Node) -> Result<Vec<(Node, Node)>, YamlError> {
    let place = node.start;
    match node.value {
        Value::Map(pairs) => Ok(pairs),
        // A control tag applies to the attribute of the value; its pairs are merged.
        Value::Tagged(tag, inner) if is_control_tag(&tag) => pairs_to_merge(*inner),
        Value::List(list) => {
            let mut merged = Vec::new();
            for member in list.into_iter().rev() {
                let kind = member.kind();
                match member.value {
                    Value::Map(pairs) => merged.extend(pairs),
                    Value::Tagged(tag, inner)
                        if is_control_tag(&tag) && inner.as_map().is_some() =>
                    {
                        merged.extend(pairs_to_merge(*inner)?);
                    }
                    _ => {
                        return Err(error(
                            member.start,
                            format!("expected a mapping for merging, but found {kind}"),
                        ));
                    }
                }
            }
            Ok(merged)
        }
        other => {
            let kind = Node { value: other, start: place, end: place }.kind();
            Err(error(
                place,
                format!("expected a mapping or list of mappings for merging, but found {kind}"),
            ))
        }
    }
}

/// Removes duplicate keys: the last value takes the first one's place in the order.
fn unique(pairs: Vec<(Node, Node)>) -> Vec<(Node, Node)> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(pairs.len());
    let mut unique: Vec<(Node, Node)> = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let identity = identity(&key);
        match places.get(&identity).and_then(|place| unique.get_mut(*place)) {
            Some((first, slot)) => {
                (first.start, first.end) = (key.start, key.end);
                *slot = value;
            }
            None => {
                places.insert(identity, unique.len());
                unique.push((key, value));
            }
        }
    }
    unique
}

/// Returns a text that is the same for equal keys. As in Python, 1, 1.0 and true are equal.
fn identity(key: &Node) -> String {
    match &key.value {
        Value::Text(text) => format!("t{text}"),
        Value::Bool(flag) => format!("n{}", i64::from(*flag)),
        Value::Int(number) => format!("n{number}"),
        Value::Long(digits) => format!("n{digits}"),
        Value::Float(number) if number.fract() == 0.0 => format!("n{number:.0}"),
        Value::Float(number) => format!("n{number}"),
        Value::Null => "null".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns a scalar as a value of the type that its tag, or, if it is `plain` (without quotes) and
/// untagged, its text says. Any other is a text. A tag of the configuration language stays around
/// the value; an empty text after a control tag is a null. An error for an unknown tag, or a text
/// that is not of the tag's type.
fn scalar_node(
    tag: Option<String>,
    text: &str,
    plain: bool,
    start: Mark,
    end: Mark,
) -> Result<Composed, YamlError> {
    let place = |value| Node { value, start, end };
    let tag = tag.filter(|tag| tag != "!");
    let kind = match tag.as_deref().and_then(|tag| tag.strip_prefix(STANDARD)) {
        Some("str" | "value") => Kind::Text,
        Some("timestamp") => Kind::Date,
        Some("int") => Kind::Int,
        Some("float") => Kind::Float,
        Some("bool") => Kind::Bool,
        Some("null") => Kind::Null,
        Some("merge") => Kind::Merge,
        Some(_) => return Err(unknown_tag(&tag.unwrap_or_default(), start)),
        None if tag.is_none() && plain => scalar::kind(text),
        None => Kind::Text,
    };
    let value = scalar::value(text, kind).map_err(|message| error(start, message))?;
    match tag {
        Some(tag) if !tag.starts_with(STANDARD) => {
            if !is_own_tag(&tag) {
                return Err(unknown_tag(&tag, start));
            }
            // A control tag describes how to combine the value; the value is read as if it had no
            // tag.
            let inner = if is_control_tag(&tag) && is_empty_text(text) {
                scalar::value(text, scalar::kind(text))
            } else {
                Ok(value)
            };
            let inner = inner.map_err(|message| error(start, message))?;
            Ok(Composed { node: place(Value::Tagged(tag, Box::new(place(inner)))), merge: false })
        }
        _ => Ok(Composed { node: place(value), merge: kind == Kind::Merge }),
    }
}

/// Returns whether a text is empty, so that a control tag before it stands for an empty list or
/// mapping.
fn is_empty_text(text: &str) -> bool {
    text.is_empty()
}

/// Returns a list or mapping with its tag applied. `own_kind` is its standard type, `seq` or `map`.
/// Without a tag or with its own type it stays as it is. A tag of the configuration language stays
/// around the value; `!!omap` and `!!pairs` before a list make a list of pairs. An error for any
/// other tag.
fn tagged(tag: Option<String>, own_kind: &str, node: Node) -> Result<Composed, YamlError> {
    let Some(tag) = tag.filter(|tag| tag != "!") else {
        return Ok(Composed { node, merge: false });
    };
    let node = match tag.strip_prefix(STANDARD) {
        Some(kind) if kind == own_kind => node,
        Some("omap" | "pairs") if own_kind == "seq" => in_pairs(node)?,
        _ if is_own_tag(&tag) => {
            let (start, end) = (node.start, node.end);
            Node { value: Value::Tagged(tag, Box::new(node)), start, end }
        }
        _ => return Err(unknown_tag(&tag, node.start)),
    };
    Ok(Composed { node, merge: false })
}

/// Converts a list of single-key mappings with `!!omap` or `!!pairs` to a list of lists of two, key
/// and value, as PyYAML does. A member that is not a mapping with one key is an error. Any other
/// value than a list is returned as it is.
fn in_pairs(node: Node) -> Result<Node, YamlError> {
    let Node { value, start, end } = node;
    let list = match value {
        Value::List(list) => list,
        other => return Ok(Node { value: other, start, end }),
    };
    let mut pairs = Vec::with_capacity(list.len());
    for member in list {
        let (start, end) = (member.start, member.end);
        let pair = match member.value {
            Value::Map(map) if map.len() == 1 => map.into_iter().next(),
            _ => None,
        };
        let Some((key, value)) = pair else {
            let message = "expected a mapping with one key here, as each member of \"!!omap\" and \
                           \"!!pairs\" is";
            return Err(error(start, message));
        };
        pairs.push(Node { value: Value::List(vec![key, value]), start, end });
    }
    Ok(Node { value: Value::List(pairs), start, end })
}

/// Returns whether a tag belongs to the configuration language: ciphertexts, control tags and
/// Ansible's unsafe texts.
fn is_own_tag(tag: &str) -> bool {
    is_ciphertext_tag(tag) || is_control_tag(tag) || tag == "!unsafe"
}

/// Returns whether a tag marks a value encrypted with a project's key (Z5.1). Sluice cannot decrypt
/// other schemes.
fn is_ciphertext_tag(tag: &str) -> bool {
    matches!(tag, "!encrypted/pkcs1" | "!encrypted/pkcs1-oaep")
}

/// Returns whether a tag says how a value combines with inherited ones (`!override`, `!inherit`).
fn is_control_tag(tag: &str) -> bool {
    matches!(tag, "!override" | "!inherit")
}

/// Returns the error for a tag that is unknown, or not allowed for its value, with advice for
/// YAML's own types. The caller has checked the tag.
fn unknown_tag(tag: &str, place: Mark) -> YamlError {
    // No attribute accepts these types, and JSON cannot represent them.
    let instead = match tag.strip_prefix(STANDARD) {
        Some("binary") => {
            "there are no bytes (\"!!binary\") in configuration: leave the tag out, and have the \
             playbook decode the base64"
        }
        Some("set") => "there are no sets (\"!!set\") in configuration: write a list",
        Some(kind @ ("omap" | "pairs")) => {
            return error(
                place,
                format!("\"!!{kind}\" stands before a list of mappings with one key each"),
            );
        }
        _ => {
            return error(
                place,
                format!("could not determine a constructor for the tag \"{tag}\""),
            );
        }
    };
    error(place, instead)
}
