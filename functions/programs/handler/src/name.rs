//! The names of the functions, and the program on Lambda that has each.

use crate::InvocationError;

/// The functions, by their names in `SLUICE_FUNCTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionName {
    /// Receives webhooks.
    Webhook,
    /// Serves the API and the pages.
    Api,
    /// Handles deliveries: turns events into queue messages.
    Intake,
    /// Advances the queues.
    Gate,
    /// Loads the tenants' configuration.
    Tenant,
    /// Merges changes speculatively and freezes jobs.
    Merger,
    /// Launches and deletes nodes.
    Launcher,
    /// Manages images.
    Images,
    /// Reports results and merges changes.
    Reporter,
    /// Runs the sweeps.
    Timer,
}

/// The programs on Lambda. Only one of them links the drivers of clouds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LambdaProgram {
    /// The functions that call no cloud.
    Functions,
    /// The functions that call a cloud.
    CloudFunctions,
}

impl FunctionName {
    /// Every function with its name.
    pub const ALL: [(&'static str, Self); 10] = [
        ("webhook", Self::Webhook),
        ("api", Self::Api),
        ("intake", Self::Intake),
        ("gate", Self::Gate),
        ("tenant", Self::Tenant),
        ("merger", Self::Merger),
        ("launcher", Self::Launcher),
        ("images", Self::Images),
        ("reporter", Self::Reporter),
        ("timer", Self::Timer),
    ];

    /// Returns the name as in `SLUICE_FUNCTION`, such as `intake`.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(_, name)| *name == self)
            .map_or("function", |(as_str, _)| as_str)
    }

    /// Returns the program on Lambda that has the function: that for clouds for the launcher, the
    /// other one for all others.
    pub fn program(self) -> LambdaProgram {
        match self {
            Self::Launcher => LambdaProgram::CloudFunctions,
            Self::Webhook
            | Self::Api
            | Self::Intake
            | Self::Gate
            | Self::Tenant
            | Self::Merger
            | Self::Images
            | Self::Reporter
            | Self::Timer => LambdaProgram::Functions,
        }
    }

    /// Returns whether the function's reconciler is built from the stored connections. True for
    /// intake, reporter, merger, tenant and launcher.
    pub(crate) fn uses_connections(self) -> bool {
        matches!(self, Self::Intake | Self::Reporter | Self::Merger | Self::Tenant | Self::Launcher)
    }
}

impl LambdaProgram {
    /// Returns the name of the program's file, and of its directory in the template.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Functions => "sluice-functions",
            Self::CloudFunctions => "sluice-cloud-functions",
        }
    }

    /// Returns the function that `name`, the value of `SLUICE_FUNCTION`, names. An error for a
    /// function of another program, and for a name that no function has.
    ///
    /// # Errors
    /// For a function of another program, and for a name that no function has.
    pub fn function(self, name: &str) -> Result<FunctionName, InvocationError> {
        let function: FunctionName = name.parse()?;
        if function.program() != self {
            return Err(InvocationError::in_another_program(function));
        }
        Ok(function)
    }
}

impl std::str::FromStr for FunctionName {
    type Err = InvocationError;

    fn from_str(text: &str) -> Result<Self, InvocationError> {
        let found = Self::ALL.into_iter().find(|(as_str, _)| *as_str == text);
        found.map(|(_, name)| name).ok_or_else(|| InvocationError::unknown_function(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C1.1
    #[test]
    fn an_error_about_a_function_names_the_program_that_has_it() {
        let refused = |program: LambdaProgram, name| program.function(name).unwrap_err().message;
        assert_eq!(
            refused(LambdaProgram::Functions, "lancher"),
            "there is no function \"lancher\"; set SLUICE_FUNCTION to one of webhook, api, intake, gate, tenant, merger, images, reporter, timer (in sluice-functions), launcher (in sluice-cloud-functions)"
        );
        assert_eq!(
            refused(LambdaProgram::Functions, "launcher"),
            "the function launcher is not in this program: sluice-cloud-functions has it; make that program the function's code"
        );
        assert!(refused(LambdaProgram::CloudFunctions, "gate").contains("sluice-functions has it"));
        assert_eq!(LambdaProgram::Functions.function("gate").unwrap(), FunctionName::Gate);
    }
}
