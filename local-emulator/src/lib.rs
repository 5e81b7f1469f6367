//! One machine in the place of AWS: reads `infra/template.yaml` and provides on loopback what it
//! names.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod data;
pub mod ec2;
pub mod http;
pub mod lambda;
pub mod life;
pub mod machine;
pub mod policy;
pub mod sources;
pub mod template;
