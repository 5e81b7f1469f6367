//! What a DynamoDB request is about: the actions it needs on which tables and indexes, and the
//! items it writes.

use serde_json::{Map, Value};

use super::super::account::Account;

/// The partition key of the template's table.
const PARTITION_KEY: &str = "pk";

/// A parsed request.
pub(super) struct Request<'a> {
    /// The operation, for example `PutItem`.
    pub operation: &'a str,
    /// The members of its body.
    pub members: &'a Map<String, Value>,
}

/// An item that a request writes: its table, and its key or the item that holds the key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Touched {
    /// The table.
    pub table: String,
    /// The key attributes, possibly among others.
    pub key: Map<String, Value>,
}

impl Request<'_> {
    /// Returns every action that the caller must be allowed, each with the ARN of its table or
    /// index. A transaction has the actions of its parts, a batch one for each table. Empty for an
    /// unknown operation, and for a transaction or batch without parts; the operation itself
    /// refuses those.
    pub fn actions(&self, account: &Account) -> Vec<(&'static str, String)> {
        let table = || account.table_arn(table_name(self.text("TableName")));
        match self.operation {
            "TransactWriteItems" => self.transact_actions(account),
            "TransactGetItems" => self
                .parts()
                .filter_map(|part| part.get("Get"))
                .map(|get| ("dynamodb:GetItem", account.table_arn(table_of(get))))
                .collect(),
            "BatchGetItem" => self.batch_actions(account, "dynamodb:BatchGetItem"),
            "BatchWriteItem" => self.batch_actions(account, "dynamodb:BatchWriteItem"),
            "Query" | "Scan" => {
                let action =
                    if self.operation == "Query" { "dynamodb:Query" } else { "dynamodb:Scan" };
                let resource = match self.text("IndexName") {
                    "" => table(),
                    index => account.index_arn(table_name(self.text("TableName")), index),
                };
                vec![(action, resource)]
            }
            "PutItem" => vec![("dynamodb:PutItem", table())],
            "GetItem" => vec![("dynamodb:GetItem", table())],
            "UpdateItem" => vec![("dynamodb:UpdateItem", table())],
            "DeleteItem" => vec![("dynamodb:DeleteItem", table())],
            "CreateTable" => vec![("dynamodb:CreateTable", table())],
            "DeleteTable" => vec![("dynamodb:DeleteTable", table())],
            "DescribeTable" => vec![("dynamodb:DescribeTable", table())],
            "UpdateTable" => vec![("dynamodb:UpdateTable", table())],
            "UpdateTimeToLive" => vec![("dynamodb:UpdateTimeToLive", table())],
            "DescribeTimeToLive" => vec![("dynamodb:DescribeTimeToLive", table())],
            "ListTables" => vec![("dynamodb:ListTables", "*".to_owned())],
            "TagResource" => vec![("dynamodb:TagResource", self.text("ResourceArn").to_owned())],
            "ListTagsOfResource" => {
                vec![("dynamodb:ListTagsOfResource", self.text("ResourceArn").to_owned())]
            }
            // The operation itself is rejected as unknown later.
            _ => Vec::new(),
        }
    }

    /// Returns whether the request is a query or scan of a secondary index.
    pub fn reads_index(&self) -> bool {
        matches!(self.operation, "Query" | "Scan") && !self.text("IndexName").is_empty()
    }

    /// Returns the name of the table that the request names, also by ARN; empty for transactions
    /// and batches, and if none is named.
    pub fn table(&self) -> &str {
        table_name(self.text("TableName"))
    }

    /// Returns the items that the request puts, updates or deletes, in its order; empty for reads.
    /// Condition checks are not writes, and parts without a readable key are left out.
    pub fn writes(&self) -> Vec<Touched> {
        let one = |holder: &Value, member: &str| {
            let key = holder.get(member)?.as_object()?.clone();
            Some(Touched { table: table_of(holder).to_owned(), key })
        };
        match self.operation {
            "PutItem" | "UpdateItem" | "DeleteItem" => {
                let member = if self.operation == "PutItem" { "Item" } else { "Key" };
                let key = self.members.get(member).and_then(Value::as_object).cloned();
                let table = table_name(self.text("TableName")).to_owned();
                key.map(|key| Touched { table, key }).into_iter().collect()
            }
            "TransactWriteItems" => self
                .parts()
                .filter_map(|part| match part.as_object()?.iter().next()? {
                    (kind, put) if kind == "Put" => one(put, "Item"),
                    (kind, other) if kind == "Update" || kind == "Delete" => one(other, "Key"),
                    _ => None,
                })
                .collect(),
            "BatchWriteItem" => self.batch_writes(),
            _ => Vec::new(),
        }
    }

    /// Returns (action, ARN of the table, partition key) of each item that a single write or a
    /// transaction puts, updates or deletes. Condition checks are not writes. Batches give none,
    /// nor do items whose partition key `pk` is not a text.
    pub fn written(&self, account: &Account) -> Vec<(&'static str, String, String)> {
        let of = |action, holder: &Value, member: &str| {
            let partition = holder.get(member)?.get(PARTITION_KEY)?.get("S")?.as_str()?.to_owned();
            Some((action, account.table_arn(table_of(holder)), partition))
        };
        let (put, update, delete) =
            ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem");
        match self.operation {
            "PutItem" => {
                of(put, &Value::Object(self.members.clone()), "Item").into_iter().collect()
            }
            "UpdateItem" => {
                of(update, &Value::Object(self.members.clone()), "Key").into_iter().collect()
            }
            "DeleteItem" => {
                of(delete, &Value::Object(self.members.clone()), "Key").into_iter().collect()
            }
            "TransactWriteItems" => {
                let parts = self.parts();
                parts
                    .filter_map(|part| {
                        let of_kind = |kind: &str, action: &'static str, member: &str| {
                            part.get(kind).and_then(|part| of(action, part, member))
                        };
                        let keyed = || {
                            of_kind("Update", update, "Key")
                                .or_else(|| of_kind("Delete", delete, "Key"))
                        };
                        of_kind("Put", put, "Item").or_else(keyed)
                    })
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the write units that the request consumes if its condition fails, estimated from the
    /// sizes in the request: one for each started KiB of an item, at least one. A transaction
    /// counts its checks too and doubles the sum.
    pub fn estimated_write_units(&self) -> f64 {
        let units: f64 = self.writes().iter().map(|touched| kibibytes(&touched.key)).sum();
        let checks =
            self.parts().filter(|part| part.get("ConditionCheck").is_some()).count() as f64;
        if self.operation == "TransactWriteItems" { 2.0 * (units + checks) } else { units.max(1.0) }
    }

    /// Returns the actions of the parts of a writing transaction, each with the ARN of its table,
    /// sorted and without duplicates. Condition checks need an action of their own.
    fn transact_actions(&self, account: &Account) -> Vec<(&'static str, String)> {
        let kinds = [
            ("Put", "dynamodb:PutItem"),
            ("Update", "dynamodb:UpdateItem"),
            ("Delete", "dynamodb:DeleteItem"),
            ("ConditionCheck", "dynamodb:ConditionCheckItem"),
        ];
        let mut actions: Vec<(&'static str, String)> = self
            .parts()
            .flat_map(|part| {
                kinds.iter().filter_map(|(kind, action)| Some((*action, part.get(*kind)?)))
            })
            .map(|(action, part)| (action, account.table_arn(table_of(part))))
            .collect();
        actions.sort();
        actions.dedup();
        actions
    }

    /// Returns `action` with the ARN of each table that a batch names.
    fn batch_actions(
        &self,
        account: &Account,
        action: &'static str,
    ) -> Vec<(&'static str, String)> {
        let tables = self.members.get("RequestItems").and_then(Value::as_object);
        tables
            .into_iter()
            .flatten()
            .map(|(table, _)| (action, account.table_arn(table_name(table))))
            .collect()
    }

    /// Returns the items that a batch puts or deletes, by table.
    fn batch_writes(&self) -> Vec<Touched> {
        let tables = self.members.get("RequestItems").and_then(Value::as_object);
        let mut touched = Vec::new();
        for (table, requests) in tables.into_iter().flatten() {
            for request in requests.as_array().into_iter().flatten() {
                let put = request.get("PutRequest").and_then(|put| put.get("Item"));
                let delete = request.get("DeleteRequest").and_then(|delete| delete.get("Key"));
                if let Some(key) = put.or(delete).and_then(Value::as_object) {
                    touched.push(Touched { table: table_name(table).to_owned(), key: key.clone() });
                }
            }
        }
        touched
    }

    /// Returns the parts of a transaction; none for other requests.
    fn parts(&self) -> impl Iterator<Item = &Value> {
        self.members.get("TransactItems").and_then(Value::as_array).into_iter().flatten()
    }

    /// Returns a member of the request's body that is a text; empty if it is missing or of another
    /// type.
    fn text(&self, member: &str) -> &str {
        self.members.get(member).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Returns the name of the table that a part of a request names, also by ARN; empty if it names
/// none.
fn table_of(holder: &Value) -> &str {
    table_name(holder.get("TableName").and_then(Value::as_str).unwrap_or_default())
}

/// Returns the name of a table that is given by its name or ARN.
fn table_name(given: &str) -> &str {
    given.rsplit_once(":table/").map_or(given, |(_, name)| name)
}

/// Returns the size of an item in KiB, rounded up, from the length of its JSON, which is never
/// shorter than what DynamoDB counts.
fn kibibytes(item: &Map<String, Value>) -> f64 {
    let bytes = Value::Object(item.clone()).to_string().len();
    bytes.div_ceil(1024) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(operation: &str, body: Value) -> Vec<String> {
        let account = Account::default();
        let request = Request { operation, members: body.as_object().unwrap() };
        request
            .actions(&account)
            .into_iter()
            .map(|(action, arn)| format!("{action} {}", arn.rsplit(':').next().unwrap()))
            .collect()
    }

    #[test]
    fn a_transaction_needs_the_action_of_each_of_its_parts() {
        let body = serde_json::json!({"TransactItems": [
            {"Put": {"TableName": "a", "Item": {}}},
            {"Put": {"TableName": "a", "Item": {}}},
            {"ConditionCheck": {"TableName": "b", "Key": {}}},
            {"Delete": {"TableName": "arn:aws:dynamodb:us-east-1:000000000000:table/c", "Key": {}}},
        ]});
        let expected = [
            "dynamodb:ConditionCheckItem table/b",
            "dynamodb:DeleteItem table/c",
            "dynamodb:PutItem table/a",
        ];
        assert_eq!(actions("TransactWriteItems", body), expected);
    }

    /// C2.2
    #[test]
    fn each_item_that_is_written_is_asked_for_by_its_partition_and_one_that_is_checked_is_not() {
        let item =
            |partition: &str| serde_json::json!({"pk": {"S": partition}, "sk": {"S": "head"}});
        let body = serde_json::json!({"TransactItems": [
            {"Put": {"TableName": "a", "Item": item("queue#1")}},
            {"Update": {"TableName": "a", "Key": item("landing#1")}},
            {"Delete": {"TableName": "a", "Key": item("tenant#1")}},
            {"ConditionCheck": {"TableName": "a", "Key": item("branch#1")}},
        ]});
        let account = Account::default();
        let written = |operation: &str, body: &Value| -> Vec<String> {
            let request = Request { operation, members: body.as_object().unwrap() };
            let written = request.written(&account).into_iter();
            written.map(|(action, _, partition)| format!("{action} {partition}")).collect()
        };
        let expected = [
            "dynamodb:PutItem queue#1",
            "dynamodb:UpdateItem landing#1",
            "dynamodb:DeleteItem tenant#1",
        ];
        assert_eq!(written("TransactWriteItems", &body), expected);
        let update = serde_json::json!({"TableName": "a", "Key": item("build#1")});
        assert_eq!(written("UpdateItem", &update), ["dynamodb:UpdateItem build#1"]);
    }

    #[test]
    fn a_query_on_an_index_names_the_index() {
        let body = serde_json::json!({"TableName": "a", "IndexName": "due"});
        assert_eq!(actions("Query", body), ["dynamodb:Query table/a/index/due"]);
    }
}
