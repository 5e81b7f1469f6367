//! A job that has a nodeset to fall back on: no site has as many nodes at once as the first one
//! asks for.

/// That job.
pub const CHOOSY: &str = "choosy";

/// How many nodes each of its nodesets has, in their order.
pub const NODES: [usize; 2] = [9, 1];

/// What tenants say, so that a job may ask for so many.
pub const LIMIT: &str = "max-nodes-per-job: 9, ";

/// The job, and where it runs.
pub const CHOOSY_YAML: &str = "
- job:
    name: choosy
    run: playbooks/choosy.yaml
    nodeset:
      alternatives:
        - nodes:
            - {name: n1, label: small}
            - {name: n2, label: small}
            - {name: n3, label: small}
            - {name: n4, label: small}
            - {name: n5, label: small}
            - {name: n6, label: small}
            - {name: n7, label: small}
            - {name: n8, label: small}
            - {name: n9, label: small}
        - nodes: [{name: node, label: small}]
- project: {name: ^org/t.*, check: {jobs: [choosy]}, gate: {jobs: [choosy]}}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// N14: what is judged is what the configuration says, and the first nodeset is more than any
    /// site has.
    #[test]
    fn no_site_has_the_nodes_that_the_first_nodeset_asks_for() {
        assert_eq!(CHOOSY_YAML.matches("label: small").count(), NODES.iter().sum::<usize>());
        let mut most =
            (1..200).map(|seed| Shape::draw(seed).instances).chain([Shape::crowded(1).instances]);
        assert!(most.all(|instances| (instances as usize) < NODES[0]));
    }
}
