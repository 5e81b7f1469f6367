//! Which route a request takes: the most specific one that fits.

use crate::template::{RouteMethod, RoutePlan};
use axum::http::Method;
use std::collections::BTreeMap;

/// The routes of a front.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// Most specific first.
    routes: Vec<Route>,
}

#[derive(Debug, Clone)]
struct Route {
    function: String,
    method: RouteMethod,
    segments: Vec<Segment>,
    /// `POST /a/{name}`, which the event repeats.
    key: String,
}

/// A part of a path. The order is that of precedence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Text(String),
    Variable(String),
    /// All that is left, at least one part.
    Greedy(String),
}

/// The route that a request takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteMatch<'a> {
    /// Id of the function.
    pub function: &'a str,
    /// The route's key: `POST /a/{name}`.
    pub key: &'a str,
    /// Values of the path's variables, decoded.
    pub parameters: BTreeMap<&'a str, String>,
}

impl Routes {
    /// Builds the table of routes, the most specific first, from the template's plan. Nothing is
    /// checked: two equal routes stay in it, and the first one wins.
    #[must_use]
    pub fn new(plans: &[RoutePlan]) -> Self {
        let mut routes: Vec<Route> = plans.iter().map(Route::new).collect();
        routes.sort_by_key(Route::precedence);
        Self { routes }
    }

    /// Returns the most specific route for a method and an undecoded path, with the decoded values
    /// of the path's variables; `None` if no route matches.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str) -> Option<RouteMatch<'_>> {
        let parts = parts(path);
        self.routes.iter().find_map(|route| {
            let fits = match &route.method {
                RouteMethod::Any => true,
                RouteMethod::One(one) => one == method.as_str(),
            };
            let parameters = if fits {
                route.fit(&parts)?
            } else {
                return None;
            };
            Some(RouteMatch { function: &route.function, key: &route.key, parameters })
        })
    }
}

impl Route {
    /// Parses one route. A part `{name}` of its path is a variable, `{name+}` one for all that is
    /// left.
    fn new(plan: &RoutePlan) -> Self {
        let segment =
            |part: &str| match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                None => Segment::Text(part.to_owned()),
                Some(name) => match name.strip_suffix('+') {
                    Some(name) => Segment::Greedy(name.to_owned()),
                    None => Segment::Variable(name.to_owned()),
                },
            };
        let method = match &plan.method {
            RouteMethod::Any => "ANY",
            RouteMethod::One(one) => one,
        };
        Self {
            function: plan.function.clone(),
            method: plan.method.clone(),
            segments: parts(&plan.path).into_iter().map(segment).collect(),
            key: format!("{method} {}", plan.path),
        }
    }

    /// Returns the sort key of a route: routes without a variable for the rest come first. Then,
    /// from the left, fixed parts come before variables, and shorter paths before longer ones.
    /// Last, routes for one method come before those for any.
    fn precedence(&self) -> (bool, Vec<u8>, bool) {
        let greedy = self.segments.iter().any(|segment| matches!(segment, Segment::Greedy(_)));
        let rank = |segment: &Segment| match segment {
            Segment::Text(_) => 0,
            Segment::Variable(_) => 1,
            Segment::Greedy(_) => 2,
        };
        (greedy, self.segments.iter().map(rank).collect(), self.method == RouteMethod::Any)
    }

    /// Returns the decoded values of a route's variables if the undecoded parts of a path match it;
    /// otherwise `None`. The method is not considered. The variable for the rest needs at least one
    /// part.
    fn fit(&self, parts: &[&str]) -> Option<BTreeMap<&str, String>> {
        let mut values = BTreeMap::new();
        let mut rest = parts;
        for segment in &self.segments {
            let (first, tail) = rest.split_first()?;
            match segment {
                Segment::Text(text) if text == first => rest = tail,
                Segment::Text(_) => return None,
                Segment::Variable(name) => {
                    values.insert(name.as_str(), decode(first));
                    rest = tail;
                }
                Segment::Greedy(name) => {
                    values.insert(name.as_str(), decode(&rest.join("/")));
                    rest = &[];
                }
            }
        }
        rest.is_empty().then_some(values)
    }
}

/// Splits a path at its slashes, without the first one; `/` has no parts, and a final slash gives
/// an empty one.
fn parts(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

/// Decodes percent-encoded characters; invalid codes stay as they are, and bytes that are not UTF-8
/// are replaced.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match code
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| u8::from_str_radix(code, 16).ok())
        {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
