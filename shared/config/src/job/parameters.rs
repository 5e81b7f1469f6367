//! Checks the parameters of a manual enqueue against those that the project's stanzas define
//! (`parameters`).

use crate::error::nearest;
use crate::layout::Layout;
use serde_json::{Map, Value as Json};
use sluice_model::ProjectName;

impl Layout {
    /// Returns the variables of a manual enqueue: the given parameters, and the defaults of the
    /// parameters that are not given. A parameter without a default is left out then, or is an
    /// error if it is required. It is also an error if a given parameter is unknown or its value is
    /// not allowed. `branch` selects the stanzas that define parameters, as for
    /// [`Layout::parameters`]. If the pipeline is unknown or does not allow parameters, any given
    /// one is an error; without any, the result is empty.
    ///
    /// # Errors
    /// Every parameter error, one sentence each.
    pub fn accept_parameters(
        &self,
        project: &ProjectName,
        pipeline: &str,
        branch: Option<&str>,
        given: &Map<String, Json>,
    ) -> Result<Map<String, Json>, Vec<String>> {
        let allows_parameters =
            self.pipeline(pipeline).is_some_and(|pipeline| pipeline.allow_parameters);
        if !allows_parameters && !given.is_empty() {
            return Err(vec![format!(
                "Pipeline {pipeline} does not accept parameters: it does not set \
                 \"allow-parameters\""
            )]);
        }
        let allowed =
            if allows_parameters { self.parameters(project, pipeline, branch) } else { Vec::new() };
        let (mut accepted, mut errors) = (Map::new(), Vec::new());
        for name in
            given.keys().filter(|name| !allowed.iter().any(|allowed| allowed.name == **name))
        {
            let hint = nearest(name, allowed.iter().map(|allowed| allowed.name.as_str()));
            let hint = hint.map(|hint| format!(" (did you mean \"{hint}\"?)")).unwrap_or_default();
            errors.push(format!(
                "{} has no parameter \"{name}\" in {pipeline}{hint}",
                project.name()
            ));
        }
        for parameter in allowed {
            let name = parameter.name.clone();
            match (given.get(&name), &parameter.default) {
                (Some(value), _) => match parameter.refusal(value) {
                    Some(why) => errors.push(format!("Parameter \"{name}\" {why}")),
                    None => drop(accepted.insert(name, value.clone())),
                },
                (None, Some(default)) => drop(accepted.insert(name, default.clone())),
                (None, None) if parameter.required => {
                    errors.push(format!("Parameter \"{name}\" is required"))
                }
                (None, None) => {}
            }
        }
        if errors.is_empty() { Ok(accepted) } else { Err(errors) }
    }
}
