//! DynamoDB: conditions, transactions, limits, units, injected conflicts and lagging indexes.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Put, PutRequest, TransactWriteItem, WriteRequest,
};

use super::*;

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn item(pk: &str, more: &[(&str, AttributeValue)]) -> HashMap<String, AttributeValue> {
    let mut item = HashMap::from([("pk".to_owned(), s(pk)), ("sk".to_owned(), s("head"))]);
    item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    item
}

fn put(pk: &str) -> TransactWriteItem {
    let put = Put::builder().table_name("records").set_item(Some(item(pk, &[]))).build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

#[tokio::test]
async fn a_condition_on_a_revision_lets_one_of_many_writers_win() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    let writer = |n: usize| {
        let dynamo = dynamo.clone();
        async move {
            dynamo
                .put_item()
                .table_name("records")
                .set_item(Some(item("cell", &[("writer", AttributeValue::N(n.to_string()))])))
                .condition_expression("attribute_not_exists(pk)")
                .send()
                .await
                .is_ok()
        }
    };
    let won: Vec<bool> = futures::future::join_all((0..16).map(writer)).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

#[tokio::test]
async fn a_failed_condition_brings_back_the_item_that_was_there() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    dynamo
        .put_item()
        .table_name("records")
        .set_item(Some(item("a", &[("rev", AttributeValue::N("7".into()))])))
        .send()
        .await
        .unwrap();
    let check = ConditionCheck::builder()
        .table_name("records")
        .key("pk", s("a"))
        .key("sk", s("head"))
        .condition_expression("rev = :seen")
        .expression_attribute_values(":seen", AttributeValue::N("6".into()))
        .return_values_on_condition_check_failure(
            aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure::AllOld,
        )
        .build()
        .unwrap();
    let refused = dynamo
        .transact_write_items()
        .transact_items(put("b"))
        .transact_items(TransactWriteItem::builder().condition_check(check).build())
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = refused else {
        panic!("{refused:?}")
    };
    let reasons = cancelled.cancellation_reasons();
    assert_eq!(reasons[0].code(), Some("None"));
    assert_eq!(reasons[1].code(), Some("ConditionalCheckFailed"));
    assert_eq!(reasons[1].item().unwrap()["rev"], AttributeValue::N("7".into()));
    let other = dynamo
        .get_item()
        .table_name("records")
        .key("pk", s("b"))
        .key("sk", s("head"))
        .send()
        .await
        .unwrap();
    assert!(other.item().is_none(), "nothing of a cancelled transaction is written");
}

#[tokio::test]
async fn what_exceeds_awss_limits_is_refused() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    let big = item("big", &[("body", s(&"x".repeat(400 * 1024)))]);
    let refused =
        dynamo.put_item().table_name("records").set_item(Some(big)).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("ValidationException"));

    let many = (0..101).map(|n| put(&n.to_string())).collect();
    let refused =
        dynamo.transact_write_items().set_transact_items(Some(many)).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("ValidationException"));

    let heavy: Vec<TransactWriteItem> = (0..12)
        .map(|n| {
            let item = item(&n.to_string(), &[("body", s(&"x".repeat(380 * 1024)))]);
            let put = Put::builder().table_name("records").set_item(Some(item)).build().unwrap();
            TransactWriteItem::builder().put(put).build()
        })
        .collect();
    assert!(
        dynamo.transact_write_items().set_transact_items(Some(heavy)).send().await.is_err(),
        "over 4 MB"
    );

    let twice = vec![put("same"), put("same")];
    assert!(
        dynamo.transact_write_items().set_transact_items(Some(twice)).send().await.is_err(),
        "one item twice"
    );

    let requests: Vec<WriteRequest> = (0..26)
        .map(|n| {
            let put =
                PutRequest::builder().set_item(Some(item(&n.to_string(), &[]))).build().unwrap();
            WriteRequest::builder().put_request(put).build()
        })
        .collect();
    let refused =
        dynamo.batch_write_item().request_items("records", requests).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("ValidationException"));

    let consistent = dynamo
        .query()
        .table_name("records")
        .index_name("due")
        .consistent_read(true)
        .key_condition_expression("due_shard = :s")
        .expression_attribute_values(":s", s("0"))
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        consistent.code(),
        Some("ValidationException"),
        "an index is never read consistently"
    );
}

#[tokio::test]
async fn units_are_counted_with_indexes_and_doubled_in_transactions() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    lab.front.meter().reset();
    let due = item("a", &[("due_shard", s("0")), ("due_at", AttributeValue::N("1".into()))]);
    dynamo.put_item().table_name("records").set_item(Some(due)).send().await.unwrap();
    let written = lab.front.meter().reset().total(|row| row.operation == "PutItem");
    assert_eq!(
        (written.calls, written.write_units),
        (1, 2.0),
        "one for the table, one for the index"
    );
    assert!((written.dollars - 2.0 * prices::DYNAMODB_WRITE_UNIT).abs() < 1e-12);

    dynamo
        .transact_write_items()
        .transact_items(put("b"))
        .transact_items(put("c"))
        .send()
        .await
        .unwrap();
    let written = lab.front.meter().reset().total(|_| true);
    assert_eq!(written.write_units, 4.0);

    let read = dynamo
        .get_item()
        .table_name("records")
        .key("pk", s("a"))
        .key("sk", s("head"))
        .consistent_read(true);
    let answer = read.send().await.unwrap();
    assert!(
        answer.consumed_capacity().is_none(),
        "the request did not ask for the consumed capacity"
    );
    assert_eq!(lab.front.meter().reset().total(|_| true).read_units, 1.0);

    let failed = dynamo.put_item().table_name("records").set_item(Some(item("a", &[])));
    failed.condition_expression("attribute_not_exists(pk)").send().await.unwrap_err();
    let count = lab.front.meter().reset().total(|_| true);
    assert_eq!((count.refused, count.write_units), (1, 1.0), "a failed condition is billed");
}

#[tokio::test]
async fn conflicts_and_throttling_come_on_request_in_the_sdks_own_types() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    let faults = lab.front.faults();
    faults.add(Rule::on(
        Service::DynamoDb,
        "TransactWriteItems",
        When::Next(1),
        Fault::Before(InjectedError::TransactionConflict),
    ));
    let refused = dynamo
        .transact_write_items()
        .transact_items(put("a"))
        .transact_items(put("b"))
        .send()
        .await;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) =
        refused.unwrap_err().into_service_error()
    else {
        panic!("not cancelled");
    };
    let codes: Vec<_> =
        cancelled.cancellation_reasons().iter().map(|reason| reason.code().unwrap()).collect();
    assert_eq!(codes, ["TransactionConflict", "None"]);
    dynamo.transact_write_items().transact_items(put("a")).send().await.unwrap();

    faults.add(Rule::on(
        Service::DynamoDb,
        "PutItem",
        When::Next(1),
        Fault::Before(InjectedError::Throttled),
    ));
    let refused = dynamo
        .put_item()
        .table_name("records")
        .set_item(Some(item("c", &[])))
        .send()
        .await
        .unwrap_err();
    assert!(refused.into_service_error().is_provisioned_throughput_exceeded_exception());

    faults.add(Rule::on(
        Service::DynamoDb,
        "PutItem",
        When::Next(1),
        Fault::After(InjectedError::ConnectionLost),
    ));
    let lost = dynamo
        .put_item()
        .table_name("records")
        .set_item(Some(item("d", &[])))
        .send()
        .await
        .unwrap_err();
    assert!(lost.as_service_error().is_none(), "{lost:?}");
    let there = dynamo
        .get_item()
        .table_name("records")
        .key("pk", s("d"))
        .key("sk", s("head"))
        .send()
        .await
        .unwrap();
    assert!(there.item().is_some(), "the write took effect although the response was lost");
}

/// A table made while indexes lag has an index that lags too, and one made in the place of a
/// deleted one begins empty.
#[tokio::test]
async fn tables_made_while_indexes_lag_have_lagging_indexes_too() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    let due = || item("a", &[("due_shard", s("0")), ("due_at", AttributeValue::N("1".into()))]);
    let count = |table: &'static str| {
        let query = dynamo
            .query()
            .table_name(table)
            .index_name("due")
            .key_condition_expression("due_shard = :s");
        let query = query.expression_attribute_values(":s", s("0"));
        async move { query.send().await.unwrap().count() }
    };
    let put =
        |table: &'static str| dynamo.put_item().table_name(table).set_item(Some(due())).send();
    create_records(&dynamo).await;
    put("records").await.unwrap();
    lab.front.faults().set_index_lag(Duration::from_secs(3600));
    assert_eq!(count("records").await, 1);
    create_table(&dynamo, "later").await;
    put("later").await.unwrap();
    assert_eq!(count("later").await, 0, "it is there and lags");
    dynamo.delete_table().table_name("records").send().await.unwrap();
    create_records(&dynamo).await;
    assert_eq!(count("records").await, 0, "nothing of the old table is shown");
    lab.front.faults().set_index_lag(Duration::ZERO);
    assert_eq!((count("later").await, count("records").await), (1, 0));
}

#[tokio::test]
async fn an_index_lags_while_a_lag_is_set_and_the_table_does_not() {
    let lab = lab();
    let dynamo = lab.clients().dynamo;
    create_records(&dynamo).await;
    let due =
        |pk: &str| item(pk, &[("due_shard", s("0")), ("due_at", AttributeValue::N("1".into()))]);
    let query = || {
        let query = dynamo
            .query()
            .table_name("records")
            .index_name("due")
            .key_condition_expression("due_shard = :s");
        let query = query.expression_attribute_values(":s", s("0"));
        async move { query.send().await.unwrap().count() }
    };
    dynamo.put_item().table_name("records").set_item(Some(due("before"))).send().await.unwrap();
    lab.front.faults().set_index_lag(Duration::from_secs(3600));
    assert_eq!(query().await, 1, "what was there stays");
    dynamo.put_item().table_name("records").set_item(Some(due("after"))).send().await.unwrap();
    dynamo
        .delete_item()
        .table_name("records")
        .key("pk", s("before"))
        .key("sk", s("head"))
        .send()
        .await
        .unwrap();
    assert_eq!(query().await, 1, "the index shows what was, neither the new item nor the delete");
    let gone = dynamo
        .get_item()
        .table_name("records")
        .key("pk", s("before"))
        .key("sk", s("head"))
        .send()
        .await
        .unwrap();
    assert!(gone.item().is_none());
    lab.front.faults().set_index_lag(Duration::ZERO);
    assert_eq!(query().await, 1);
    let after = dynamo
        .get_item()
        .table_name("records")
        .key("pk", s("after"))
        .key("sk", s("head"))
        .send()
        .await
        .unwrap();
    assert!(after.item().is_some());
}
