//! Intrinsic functions: YAML with `!Ref`, `!Sub`, `!GetAtt`, `!Join` … becomes plain JSON.

use super::{DeploymentTarget, TemplateError};
use serde_json::Value as Json;
use serde_yaml::{Mapping, Value as Yaml};
use sha2::{Digest, Sha256};

/// How deep references may lead into each other.
const DEPTH_MAX: usize = 24;

/// A document and the place it is deployed to.
pub(super) struct Scope<'a> {
    place: &'a DeploymentTarget,
    parameters: &'a Mapping,
    resources: &'a Mapping,
}

impl<'a> Scope<'a> {
    /// Returns the scope of a document, in which references are resolved for a deployment to
    /// `place`. `nothing`, an empty mapping, stands for the sections `Parameters` and `Resources`
    /// if they are absent or no mappings.
    pub(super) fn new(
        document: &'a Yaml,
        place: &'a DeploymentTarget,
        nothing: &'a Mapping,
    ) -> Self {
        let section = |name: &str| document.get(name).and_then(Yaml::as_mapping).unwrap_or(nothing);
        Self { place, parameters: section("Parameters"), resources: section("Resources") }
    }

    /// Returns `value` as JSON with every intrinsic function replaced by its result. `at` is what
    /// errors name as the place. An error for an unknown function, a reference to nothing, or
    /// references that lead in a circle or too deep.
    pub(super) fn resolve(&self, at: &str, value: &Yaml) -> Result<Json, TemplateError> {
        self.value(at, value, DEPTH_MAX)
    }

    /// Resolves a value and everything in it, as [`Self::resolve`], but down to `depth` levels; a
    /// value or reference that lies deeper is an error.
    fn value(&self, at: &str, value: &Yaml, depth: usize) -> Result<Json, TemplateError> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| TemplateError::shape(at, "leads in a circle or too deep"))?;
        match value {
            Yaml::Tagged(tagged) => {
                let tag = tagged.tag.to_string();
                self.call(at, tag.trim_start_matches('!'), &tagged.value, depth)
            }
            Yaml::Mapping(map) => match long_form(map) {
                Some((name, argument)) => self.call(at, name, argument, depth),
                None => {
                    let mut fields = serde_json::Map::new();
                    for (key, inner) in map {
                        let key = text(at, key)?;
                        fields.insert(key.to_owned(), self.value(at, inner, depth)?);
                    }
                    Ok(Json::Object(fields))
                }
            },
            Yaml::Sequence(items) => {
                let items = items.iter().map(|item| self.value(at, item, depth));
                Ok(Json::Array(items.collect::<Result<_, _>>()?))
            }
            plain => serde_json::to_value(plain)
                .map_err(|source| TemplateError::Fields { place: at.to_owned(), source }),
        }
    }

    /// Returns the result of the intrinsic function `name`, without `!` or `Fn::`. `Base64` returns
    /// its argument unencoded, because nothing here uses it. An error for a function that is not
    /// supported.
    fn call(
        &self,
        at: &str,
        name: &str,
        argument: &Yaml,
        depth: usize,
    ) -> Result<Json, TemplateError> {
        match name {
            "Ref" => self.reference(at, text(at, argument)?, depth),
            "GetAtt" => {
                let path = match argument {
                    Yaml::Sequence(parts) => parts
                        .iter()
                        .map(|part| text(at, part))
                        .collect::<Result<Vec<_>, _>>()?
                        .join("."),
                    other => text(at, other)?.to_owned(),
                };
                self.attribute(at, &path, depth).map(Json::String)
            }
            "Sub" => self.substitute(at, argument, depth).map(Json::String),
            "Join" => self.join(at, argument, depth).map(Json::String),
            // What the machine does not provide is all that uses it: a host's start script.
            "Base64" => self.value(at, argument, depth),
            other => Err(TemplateError::shape(
                at,
                format!("uses !{other}, which this machine does not know"),
            )),
        }
    }

    /// Returns the result of `!Ref`: of a pseudo parameter such as `AWS::Region`, otherwise of a
    /// parameter, otherwise of a resource. An error if there is none of these.
    fn reference(&self, at: &str, name: &str, depth: usize) -> Result<Json, TemplateError> {
        let place = self.place;
        let pseudo = match name {
            "AWS::StackName" => Some(place.stack.as_str()),
            "AWS::AccountId" => Some(place.account.as_str()),
            "AWS::Region" => Some(place.region.as_str()),
            "AWS::Partition" => Some("aws"),
            "AWS::URLSuffix" => Some("amazonaws.com"),
            _ => None,
        };
        if let Some(value) = pseudo {
            return Ok(Json::String(value.to_owned()));
        }
        if let Some(parameter) = self.parameters.get(name) {
            return self.parameter(at, name, parameter);
        }
        self.physical_id(at, name, depth).map(Json::String)
    }

    /// Returns the value of the template parameter `name`, which `parameter` declares: the given
    /// one or the default, as a text, or as a list, split at commas, for a list type. An error if
    /// there is neither; a default that is neither text nor number counts as none. Its type and
    /// allowed values are not checked.
    fn parameter(&self, at: &str, name: &str, parameter: &Yaml) -> Result<Json, TemplateError> {
        let given = self.place.parameters.get(name).cloned();
        let default = || match parameter.get("Default") {
            Some(Yaml::String(value)) => Some(value.clone()),
            Some(Yaml::Number(value)) => Some(value.to_string()),
            _ => None,
        };
        let value = given.or_else(default).ok_or_else(|| {
            TemplateError::shape(
                at,
                format!("needs the parameter {name}, which has no default; give it a value"),
            )
        })?;
        let kind = parameter.get("Type").and_then(Yaml::as_str).unwrap_or_default();
        if kind.starts_with("List<") || kind == "CommaDelimitedList" {
            return Ok(value.split(',').map(|item| Json::String(item.trim().to_owned())).collect());
        }
        Ok(Json::String(value))
    }

    /// Returns the result of `!Ref` of a resource: a queue's URL, the ARN of a managed policy or
    /// topic, otherwise the name, for a KMS key its id. An error if it is not in the template.
    fn physical_id(&self, at: &str, logical: &str, depth: usize) -> Result<String, TemplateError> {
        let (kind, name) = self.named(at, logical, depth)?;
        Ok(match kind {
            "AWS::SQS::Queue" => format!("{}/{}/{name}", self.place.endpoint, self.place.account),
            "AWS::IAM::ManagedPolicy" | "AWS::SNS::Topic" => self.arn(kind, &name),
            _ => name,
        })
    }

    /// Returns the result of `!GetAtt` for `path`, which has the form `LOGICAL.ATTRIBUTE`. Each
    /// resource has `Arn`; a few types have further attributes. Any other one is an error.
    fn attribute(&self, at: &str, path: &str, depth: usize) -> Result<String, TemplateError> {
        let (logical, attribute) = path.split_once('.').ok_or_else(|| {
            TemplateError::shape(at, format!("asks for !GetAtt {path} without an attribute"))
        })?;
        let (kind, name) = self.named(at, logical, depth)?;
        match (kind, attribute) {
            (_, "Arn") => Ok(self.arn(kind, &name)),
            ("AWS::SQS::Queue", "QueueName") | ("AWS::ECS::Service", "Name") => Ok(name),
            ("AWS::EC2::LaunchTemplate", "LatestVersionNumber") => Ok("1".to_owned()),
            _ => Err(TemplateError::shape(
                at,
                format!("asks for {path}, an attribute this machine does not know"),
            )),
        }
    }

    /// Returns the type and the physical name of a resource: the name in its properties, or
    /// `STACK-LOGICAL` without one and for types whose names are not read; for a KMS key its id. An
    /// error if it is not in the template.
    fn named(
        &self,
        at: &str,
        logical: &str,
        depth: usize,
    ) -> Result<(&'a str, String), TemplateError> {
        let resource = self.resources.get(logical).ok_or_else(|| {
            TemplateError::shape(at, format!("refers to {logical}, which is not in the template"))
        })?;
        let kind = resource.get("Type").and_then(Yaml::as_str).unwrap_or_default();
        let property = match kind {
            "AWS::DynamoDB::Table" => "TableName",
            "AWS::S3::Bucket" => "BucketName",
            "AWS::SQS::Queue" => "QueueName",
            "AWS::Serverless::Function" => "FunctionName",
            "AWS::Logs::LogGroup" => "LogGroupName",
            "AWS::ECS::Cluster" => "ClusterName",
            "AWS::ECS::Service" => "ServiceName",
            "AWS::SNS::Topic" => "TopicName",
            "AWS::KMS::Key" => return Ok((kind, self.key_id(logical))),
            _ => return Ok((kind, format!("{}-{logical}", self.place.stack))),
        };
        let given = resource.get("Properties").and_then(|properties| properties.get(property));
        let name = match given {
            None => format!("{}-{logical}", self.place.stack),
            Some(value) => match self.value(logical, value, depth)? {
                Json::String(name) => name,
                _ => {
                    return Err(TemplateError::shape(
                        logical,
                        format!("has a {property} that is no text"),
                    ));
                }
            },
        };
        Ok((kind, name))
    }

    /// Returns the id of a KMS key in the form of a UUID, always the same for a stack and logical
    /// name.
    fn key_id(&self, logical: &str) -> String {
        let digest = hex::encode(Sha256::digest(format!("{}/{logical}", self.place.stack)));
        let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
        [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
    }

    /// Returns the ARN of a resource of type `kind` (`AWS::Service::Thing`) with the physical name
    /// `name`, whether it exists or not. Unknown types get an invented one.
    pub(super) fn arn(&self, kind: &str, name: &str) -> String {
        let DeploymentTarget { region, account, .. } = self.place;
        match kind {
            "AWS::DynamoDB::Table" => format!("arn:aws:dynamodb:{region}:{account}:table/{name}"),
            "AWS::S3::Bucket" => format!("arn:aws:s3:::{name}"),
            "AWS::SQS::Queue" => format!("arn:aws:sqs:{region}:{account}:{name}"),
            "AWS::SNS::Topic" => format!("arn:aws:sns:{region}:{account}:{name}"),
            "AWS::KMS::Key" => format!("arn:aws:kms:{region}:{account}:key/{name}"),
            "AWS::Serverless::Function" => {
                format!("arn:aws:lambda:{region}:{account}:function:{name}")
            }
            "AWS::Logs::LogGroup" => format!("arn:aws:logs:{region}:{account}:log-group:{name}:*"),
            "AWS::IAM::Role" => format!("arn:aws:iam::{account}:role/{name}"),
            "AWS::IAM::ManagedPolicy" => format!("arn:aws:iam::{account}:policy/{name}"),
            "AWS::Events::Rule" => format!("arn:aws:events:{region}:{account}:rule/{name}"),
            other => format!(
                "arn:aws:{}:{region}:{account}:{name}",
                other.replace("::", "-").to_lowercase()
            ),
        }
    }

    /// Returns the result of `!Sub "text"` or `!Sub ["text", {name: value}]`: each `${name}` is
    /// replaced by its own value, attribute or reference, and `${!name}` becomes `${name}`. An
    /// error for a `${` without end, and a value that is a list or mapping.
    fn substitute(&self, at: &str, argument: &Yaml, depth: usize) -> Result<String, TemplateError> {
        let (pattern, own) = match argument {
            Yaml::Sequence(parts) => match parts.as_slice() {
                [pattern, own] => (text(at, pattern)?, own.as_mapping()),
                _ => {
                    return Err(TemplateError::shape(at, "has a !Sub that is not [text, values]"));
                }
            },
            other => (text(at, other)?, None),
        };
        let mut result = String::new();
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once("${") {
            result.push_str(before);
            let (name, tail) = after.split_once('}').ok_or_else(|| {
                TemplateError::shape(at, "has a !Sub with a ${ that does not end")
            })?;
            rest = tail;
            if let Some(literal) = name.strip_prefix('!') {
                result.push_str("${");
                result.push_str(literal);
                result.push('}');
                continue;
            }
            let value = match own.and_then(|own| own.get(name)) {
                Some(value) => scalar(at, &self.value(at, value, depth)?)?,
                None if name.contains('.') => self.attribute(at, name, depth)?,
                None => scalar(at, &self.reference(at, name, depth)?)?,
            };
            result.push_str(&value);
        }
        result.push_str(rest);
        Ok(result)
    }

    /// Returns the result of `!Join [separator, list]`. An error if the list is none, or contains
    /// lists or mappings.
    fn join(&self, at: &str, argument: &Yaml, depth: usize) -> Result<String, TemplateError> {
        let Some([separator, list]) = argument.as_sequence().map(Vec::as_slice) else {
            return Err(TemplateError::shape(at, "has a !Join that is not [separator, list]"));
        };
        match self.value(at, list, depth)? {
            Json::Array(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| scalar(at, item)).collect::<Result<_, _>>()?;
                Ok(items.join(text(at, separator)?))
            }
            _ => Err(TemplateError::shape(at, "joins something that is no list")),
        }
    }
}

/// Returns the name, without `Fn::`, and the argument of `{ Ref: … }` or `{ Fn::Name: … }`; `None`
/// for any other mapping. Whether the function is known is not checked.
pub(super) fn long_form(map: &Mapping) -> Option<(&str, &Yaml)> {
    let (key, argument) = map.iter().next().filter(|_| map.len() == 1)?;
    let key = key.as_str()?;
    if key == "Ref" {
        Some((key, argument))
    } else {
        key.strip_prefix("Fn::").map(|name| (name, argument))
    }
}

/// Returns the text of a YAML value; an error that names `at` for any other value, also a number.
fn text<'v>(at: &str, value: &'v Yaml) -> Result<&'v str, TemplateError> {
    value
        .as_str()
        .ok_or_else(|| TemplateError::shape(at, "has something else where text must stand"))
}

/// Returns a text, number or truth value as text; any other value, also null, is an error.
fn scalar(at: &str, value: &Json) -> Result<String, TemplateError> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(flag) => Ok(flag.to_string()),
        _ => Err(TemplateError::shape(at, "puts a list or a map into a text")),
    }
}
