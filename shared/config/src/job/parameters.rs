//! What somebody gives to an enqueue by hand, held against what the project's stanzas let him give
//! (`parameters`).

use crate::error::nearest;
use crate::layout::Layout;
use serde_json::{Map, Value as Json};
use sluice_model::ProjectName;

impl Layout {
    /// Returns the variables that an enqueue by hand comes to: what was given, and the defaults of
    /// what was not.
    ///
    /// # Errors
    /// Everything that is wrong with what was given, a sentence each.
    pub fn accept_parameters(
        &self,
        project: &ProjectName,
        pipeline: &str,
        branch: Option<&str>,
        given: &Map<String, Json>,
    ) -> Result<Map<String, Json>, Vec<String>> {
        let takes_some = self.pipeline(pipeline).is_some_and(|pipeline| pipeline.allow_parameters);
        if !takes_some && !given.is_empty() {
            return Err(vec![format!(
                "Pipeline {pipeline} takes no parameters: it has no \"allow-parameters\""
            )]);
        }
        let known =
            if takes_some { self.parameters(project, pipeline, branch) } else { Vec::new() };
        let (mut accepted, mut wrong) = (Map::new(), Vec::new());
        for name in given.keys().filter(|name| !known.iter().any(|known| known.name == **name)) {
            let meant = nearest(name, known.iter().map(|known| known.name.as_str()));
            let meant =
                meant.map(|meant| format!(" (did you mean \"{meant}\"?)")).unwrap_or_default();
            wrong.push(format!(
                "{} has no parameter \"{name}\" in {pipeline}{meant}",
                project.name()
            ));
        }
        for parameter in known {
            let name = parameter.name.clone();
            match (given.get(&name), &parameter.default) {
                (Some(value), _) => match parameter.refuses(value) {
                    Some(why) => wrong.push(format!("Parameter \"{name}\" {why}")),
                    None => drop(accepted.insert(name, value.clone())),
                },
                (None, Some(default)) => drop(accepted.insert(name, default.clone())),
                (None, None) if parameter.required => {
                    wrong.push(format!("Parameter \"{name}\" must be given"))
                }
                (None, None) => {}
            }
        }
        if wrong.is_empty() { Ok(accepted) } else { Err(wrong) }
    }
}
