//! [`super::Scenario::NodesetFallbacks`]: a job with two alternative nodesets. No site has enough
//! nodes for the first one.

/// The name of the job.
pub const CHOOSY: &str = "choosy";

/// The number of nodes in each of its nodesets, in order.
pub const NODES: [usize; 2] = [9, 1];

/// The attribute of the tenant configuration that allows a job so many nodes.
pub const LIMIT: &str = "max-nodes-per-job: 9, ";

/// The configuration of the job and of the pipelines that run it.
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

    /// N14: the checked node counts are the configured ones, and no site has enough for the first
    /// nodeset.
    #[test]
    fn no_site_has_enough_nodes_for_the_first_nodeset() {
        assert_eq!(CHOOSY_YAML.matches("label: small").count(), NODES.iter().sum::<usize>());
        let mut most =
            (1..200).map(|seed| Shape::draw(seed).instances).chain([Shape::crowded(1).instances]);
        assert!(most.all(|instances| (instances as usize) < NODES[0]));
    }
}
