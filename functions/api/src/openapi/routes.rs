//! The form of the table of routes, and how a path is found in it.

use http::Method;

/// A path of the API with its operations.
#[derive(Debug)]
pub(crate) struct Route {
    /// The name in the list at `/api`, as in Zuul where Zuul has the route.
    pub(crate) name: &'static str,
    /// The path. `{name}` is one part, `{name*}` is one or more parts: names of projects, branches
    /// and jobs may have slashes.
    pub(crate) path: &'static str,
    pub(crate) operations: &'static [Operation],
}

/// What a method does at a path.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: OperationMethod,
    /// What it returns or changes, in one sentence.
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [QueryParameter],
    /// The name of the schema of its body; `None` if it takes no body.
    pub(crate) body: Option<&'static str>,
    pub(crate) answer: Answer,
}

impl Operation {
    /// Returns whether the operation changes something.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.method, OperationMethod::Get | OperationMethod::PostQuery)
    }
}

/// The methods of operations. `HEAD` and `OPTIONS` belong to every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationMethod {
    Get,
    /// A query that is sent with `POST`, because it has a body.
    PostQuery,
    Post,
    Put,
    Delete,
}

impl OperationMethod {
    /// Returns the method's name in lower case, as OpenAPI has it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post | Self::PostQuery => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }

    /// Returns the methods that HTTP clients may use for the operation.
    fn names(self) -> &'static [Method] {
        const GET: &[Method] = &[Method::GET, Method::HEAD];
        match self {
            Self::Get => GET,
            Self::Post | Self::PostQuery => &[Method::POST],
            Self::Put => &[Method::PUT],
            Self::Delete => &[Method::DELETE],
        }
    }
}

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryParameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) description: &'static str,
}

/// What a query parameter contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    /// One text.
    Text,
    /// A text that may be repeated; one of the values must match.
    Texts,
    /// A whole number of 0 or more.
    Number,
    /// A whole number of 0 or more that must be given.
    RequiredNumber,
    /// The number of records to skip, which has a limit.
    Skip,
}

/// A successful answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Status 200 and a value of the named schema.
    Json(&'static str),
    /// Status 200 and a list of the named schema.
    List(&'static str),
    /// Status 200 and `true`.
    True,
    /// Status 200 and `null`.
    Null,
    /// Status 201 and `null`.
    CreatedNull,
    /// Status 204 without a body.
    NoContent,
    /// Status 200, or 206 for a byte range, and text of the media type.
    Text(&'static str),
    /// Status 200, or 206 for a byte range, and a file of any type.
    File,
}

impl Route {
    /// Returns whether a path, given by its parts, is one of this route.
    pub(crate) fn matches(&self, parts: &[&str]) -> bool {
        let template: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        matches_template(&template, parts)
    }

    /// Returns the methods of the path for `Allow` and for CORS.
    pub(crate) fn methods(&self) -> String {
        let of_operations = self.operations.iter().flat_map(|operation| operation.method.names());
        let all = of_operations.map(Method::as_str).chain([Method::OPTIONS.as_str()]);
        all.collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether a path matches a template, both given by their parts.
fn matches_template(template: &[&str], parts: &[&str]) -> bool {
    let Some((first, template_rest)) = template.split_first() else { return parts.is_empty() };
    let Some((part, rest)) = parts.split_first() else { return false };
    match ParameterPart::of(first) {
        None => part == first && matches_template(template_rest, rest),
        Some(ParameterPart { takes_slashes: false, suffix, .. }) => {
            part.ends_with(suffix) && matches_template(template_rest, rest)
        }
        Some(ParameterPart { takes_slashes: true, suffix, .. }) => (1..=parts.len()).any(|count| {
            let (named, rest) = parts.split_at(count);
            named.last().is_some_and(|last| last.ends_with(suffix))
                && matches_template(template_rest, rest)
        }),
    }
}

/// A part of a path's template that is a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParameterPart<'t> {
    pub(crate) name: &'t str,
    pub(crate) takes_slashes: bool,
    /// What follows the parameter in its last part, as in `{project*}.pub`.
    pub(crate) suffix: &'t str,
}

impl<'t> ParameterPart<'t> {
    /// Returns the parameter of a template's part; `None` for a part that is literal.
    pub(crate) fn of(part: &'t str) -> Option<Self> {
        let (name, suffix) = part.strip_prefix('{')?.split_once('}')?;
        let short = name.strip_suffix('*');
        Some(Self { name: short.unwrap_or(name), takes_slashes: short.is_some(), suffix })
    }
}
