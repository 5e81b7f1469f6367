//! What commands print after the API has accepted a change.

use crate::api_client::Client;
use crate::output::{OutputFormat, print_json, print_line};
use serde_json::json;

/// A request that the API has accepted: it is stored, and the functions of the system carry it out.
pub(super) struct AcceptedWrite {
    /// What was requested, such as `to enqueue org/one#7 in gate`.
    pub(super) what: String,
    /// The command that shows the outcome, without the system's address.
    pub(super) outcome: String,
}

impl AcceptedWrite {
    /// Prints what was accepted, and the command that shows the outcome at the same system.
    pub(super) fn print(&self, client: &Client, format: OutputFormat) {
        let outcome = format!("{}{}", self.outcome, client.option());
        match format {
            OutputFormat::Json => {
                print_json(&json!({"accepted": self.what, "outcome": outcome}));
            }
            OutputFormat::Text => {
                print_line!("Accepted: {}.", self.what);
                print_line!("To see the outcome: {outcome}");
            }
        }
    }
}
