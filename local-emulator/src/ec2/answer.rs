//! Answers in XML.

use super::store::{ListedImage, Record};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use std::collections::BTreeMap;

const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// Returns a response with this XML, to which the declaration is added.
pub(super) fn xml(status: u16, body: String) -> Response<Bytes> {
    let mut response =
        Response::new(Bytes::from(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}")));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
    response
}

/// Escapes text for the content of XML elements; quotation marks stay.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns an XML element that contains a text, which is escaped.
fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// Returns the XML of an action's response with this content.
pub(super) fn response(action: &str, inside: &str) -> String {
    format!(
        "<{action}Response xmlns=\"{NAMESPACE}\"><requestId>local</requestId>{inside}</{action}Response>"
    )
}

/// Returns the XML of a machine's state with EC2's code for it. A name other than `pending`,
/// `running` and `shutting-down` has the code of `terminated`.
fn state(name: &str) -> String {
    let code = match name {
        "pending" => 0,
        "running" => 16,
        "shutting-down" => 32,
        _ => 48,
    };
    format!("<code>{code}</code><name>{name}</name>")
}

/// Returns the XML of tags, in order of their keys.
fn tag_set(tags: &BTreeMap<String, String>) -> String {
    let item = |(key, value): (&String, &String)| {
        format!("<item>{}{}</item>", element("key", key), element("value", value))
    };
    format!("<tagSet>{}</tagSet>", tags.iter().map(item).collect::<String>())
}

/// Returns the XML of a machine with its tags; `account_zone` is its zone. A terminated machine has
/// no address.
fn instance(record: &Record, account_zone: &str) -> String {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(record.launched_ms).unwrap_or(0))
        .unwrap_or_default();
    let mut text = String::from("<item>");
    text += &element("instanceId", &record.id);
    text += &element("imageId", &record.image);
    text += &format!("<instanceState>{}</instanceState>", state(record.state.as_str()));
    text += &element("instanceType", &record.kind);
    text += &element("launchTime", &format!("{time:.3}"));
    text += &format!("<placement>{}</placement>", element("availabilityZone", account_zone));
    if record.state.exists() {
        text += &element("privateIpAddress", &record.address);
    }
    if let Some(token) = &record.token {
        text += &element("clientToken", token);
    }
    text += &tag_set(&record.tags);
    text + "</item>"
}

/// Returns the XML of the content of a reservation: its id and its machines. All `records` must be
/// of one launch.
pub(super) fn reservation(records: &[&Record]) -> String {
    let id = records.first().map_or("", |record| record.reservation.as_str());
    let machines: String = records.iter().map(|record| instance(record, &record.az)).collect();
    format!("{}<groupSet/><instancesSet>{machines}</instancesSet>", element("reservationId", id))
}

/// Returns the XML of machines, each within its reservation, ordered by the ids of the
/// reservations; with the token of the next page if there is one.
pub(super) fn instances(records: &[Record], next: Option<&str>) -> String {
    let mut reservations: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        reservations.entry(&record.reservation).or_default().push(record);
    }
    let items: String = reservations
        .values()
        .map(|records| format!("<item>{}</item>", reservation(records)))
        .collect();
    format!(
        "<reservationSet>{items}</reservationSet>{}",
        next.map(|next| element("nextToken", next)).unwrap_or_default()
    )
}

/// Returns the XML of a `TerminateInstances` response, from (id, state before, state after) of each
/// machine.
pub(super) fn changes(changes: &[(String, &'static str, &'static str)]) -> String {
    let item = |(id, before, after): &(String, &'static str, &'static str)| {
        let (before, after) = (state(before), state(after));
        format!(
            "<item>{}<currentState>{after}</currentState><previousState>{before}</previousState></item>",
            element("instanceId", id)
        )
    };
    format!("<instancesSet>{}</instancesSet>", changes.iter().map(item).collect::<String>())
}

/// Returns the XML of images, all owned by the account `owner`.
pub(super) fn images(images: &[&ListedImage], owner: &str) -> String {
    let item = |image: &&ListedImage| {
        let fields = [
            ("imageId", &*image.id),
            ("imageState", image.state.as_str()),
            ("imageOwnerId", owner),
            ("name", &image.name),
            ("creationDate", &image.created),
        ];
        let fields = fields.map(|(name, text)| element(name, text)).concat();
        format!("<item>{fields}{}</item>", tag_set(&image.tags))
    };
    format!("<imagesSet>{}</imagesSet>", images.iter().map(item).collect::<String>())
}

/// Returns the XML of the id of an image that is being made.
pub(super) fn image_id(id: &str) -> String {
    element("imageId", id)
}
