//! Checks of the table.

mod conditions;
mod indexes;
mod reading;
mod transactions;

use crate::check::Check;

pub(crate) fn checks() -> Vec<Check> {
    [conditions::checks(), transactions::checks(), reading::checks(), indexes::checks()].concat()
}
