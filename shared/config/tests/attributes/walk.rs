//! The walk over the attribute list: each attribute within its parents, with all required
//! attributes.

use crate::documents;
use crate::exceptions::{either_of, is_attribute};
use crate::list::{self, Attribute, Objects};
use serde_json::{Map, Value as Json, json};

/// Returns all objects of the list, and the two locations of a job list's entry.
pub fn objects() -> Objects {
    let text = crate::common::ATTRIBUTES;
    let mut objects = list::read(text, is_attribute);
    // An entry of a job list has the attributes of a job except its name.
    for place in ["entry of a project", "entry of a template"] {
        let job = list::read(text, |object, name| {
            object == "job" && name != "name" && is_attribute(object, name)
        });
        objects.extend(job.into_values().map(|attributes| (place.to_owned(), attributes)));
    }
    objects
}

/// An attribute and its parents.
pub struct At<'a> {
    pub object: &'a str,
    pub root: &'a Attribute,
    pub path: Vec<String>,
    pub attribute: &'a Attribute,
}

impl At<'_> {
    /// Returns the attribute's own name.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Returns every attribute of every object.
    pub fn all<'a>(objects: &'a Objects) -> Vec<At<'a>> {
        let mut found = Vec::new();
        for (object, root) in objects {
            below(object, root, root, &mut Vec::new(), &mut found);
        }
        found
    }

    /// Returns the object's attributes with this attribute set to a value, or without it.
    pub fn given(&self, value: Option<Json>) -> Map<String, Json> {
        let mut above = vec![self.root];
        for part in &self.path {
            above.push(&above[above.len() - 1].children[part]);
        }
        let depth = self.path.len();
        let mut inner = required(
            self.object,
            self.root,
            &self.path[..depth - 1],
            above[depth - 1],
            self.name(),
        );
        if let Some(value) = value {
            for (name, value) in documents::companions(self.object, &self.path, &value) {
                inner.insert(name.to_owned(), value);
            }
            inner.insert(self.name().to_owned(), value);
        }
        for at in (1..depth).rev() {
            let mut outer = required(
                self.object,
                self.root,
                &self.path[..at - 1],
                above[at - 1],
                &self.path[at - 1],
            );
            let inside = Json::Object(inner);
            let wrap = above[at].kind.as_ref().is_some_and(|kind| !kind.accepts(&json!({})));
            outer.insert(self.path[at - 1].clone(), if wrap { json!([inside]) } else { inside });
            inner = outer;
        }
        inner
    }

    /// Returns valid values, one for each form.
    pub fn right(&self) -> Vec<Json> {
        let map = full(self.object, self.root, &self.path, self.attribute);
        self.attribute
            .kind
            .as_ref()
            .map(|kind| kind.right(documents::a_text(&self.path), &map))
            .unwrap_or_default()
    }
}

fn below<'a>(
    object: &'a str,
    root: &'a Attribute,
    here: &'a Attribute,
    path: &mut Vec<String>,
    found: &mut Vec<At<'a>>,
) {
    for (name, attribute) in &here.children {
        path.push(name.clone());
        if attribute.kind.is_some() {
            found.push(At { object, root, path: path.clone(), attribute });
        }
        below(object, root, attribute, path, found);
        path.pop();
    }
}

/// Returns the attributes required in addition to an attribute.
pub fn required(
    object: &str,
    root: &Attribute,
    path: &[String],
    here: &Attribute,
    companion: &str,
) -> Map<String, Json> {
    let rivals = either_of(object, path);
    let mut given = Map::new();
    for (name, attribute) in
        here.children.iter().filter(|(name, attribute)| attribute.required && *name != companion)
    {
        if rivals.contains(&name.as_str()) && (rivals.contains(&companion) || rivals[0] != name) {
            continue;
        }
        let path = [path, std::slice::from_ref(name)].concat();
        let map = full(object, root, &path, attribute);
        let kind = attribute.kind.as_ref().unwrap();
        given.insert(name.clone(), kind.right(documents::a_text(&path), &map).remove(0));
    }
    given
}

/// Returns a mapping for an attribute: with all required attributes, or a suitable sample.
pub fn full(object: &str, root: &Attribute, path: &[String], attribute: &Attribute) -> Json {
    let with = required(object, root, path, attribute, "");
    if with.is_empty() { documents::a_map(object, path) } else { Json::Object(with) }
}
