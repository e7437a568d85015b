//! The body of `POST /requests`: read field by field, so that what is wrong is named.

use std::time::Duration;

use serde_json::{Map, Value};
use sluicegate_agents::{Ask, Priority, RequestError, SessionId, Tenant};

use super::problem::Problem;

/// What there is.
pub(super) const FIELDS: [&str; 7] =
    ["tenant", "priority", "sessionId", "message", "timeoutMs", "idempotent", "wait"];

/// How long a request may be given: longer is no deadline.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a body asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) ask: Ask,
    /// Whether the caller waits for the reply.
    pub(super) waits: bool,
    /// Fields that there are not.
    pub(super) unknown: Vec<String>,
}

impl Asked {
    pub(super) fn read(mut fields: Map<String, Value>) -> Result<Self, Problem> {
        let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        let tenant = tenant(take("tenant"))?;
        let message = match take("message") {
            Some(Value::String(message)) => message,
            Some(_) => return Err(wrong("message", "must be a string")),
            None => return Err(wrong("message", "is missing; it must be a string")),
        };
        let priority = text("priority", take("priority"))?;
        let session = text("sessionId", take("sessionId"))?;
        let ask = Ask {
            priority: priority.as_deref().map_or(Ok(Priority::Normal), Priority::parse)?,
            session: session.as_deref().map(SessionId::parse).transpose()?,
            timeout: timeout(take("timeoutMs"))?,
            idempotent: flag("idempotent", take("idempotent"))?.unwrap_or(false),
            ..Ask::new(tenant, message)
        };
        let waits = flag("wait", take("wait"))?.unwrap_or(true);
        let known = |name: &String| FIELDS.contains(&name.as_str());
        let unknown = fields.into_iter().map(|(name, _)| name).filter(|name| !known(name));
        Ok(Self { ask, waits, unknown: unknown.collect() })
    }
}

fn wrong(field: &str, message: &str) -> Problem {
    RequestError::Invalid { field: field.to_owned(), message: message.to_owned() }.into()
}

/// `telegram:42`, or an object.
fn tenant(value: Option<Value>) -> Result<Tenant, Problem> {
    const WANTED: &str =
        "must be platform:userId, as in \"telegram:42\", or an object with platform and userId";
    match value {
        Some(Value::String(text)) => Ok(Tenant::parse(&text)?),
        Some(Value::Object(mut fields)) => {
            let missing = ["platform", "userId"]
                .into_iter()
                .find(|name| fields.get(*name).is_none_or(Value::is_null));
            if let Some(name) = missing {
                return Err(wrong(&format!("tenant.{name}"), "is missing; it must be a string"));
            }
            let mut part = |name: &str| text(&format!("tenant.{name}"), fields.remove(name));
            let (platform, user, chat) = (part("platform")?, part("userId")?, part("chatId")?);
            if let Some(name) = fields.keys().next() {
                return Err(wrong(&format!("tenant.{name}"), "there is no such field"));
            }
            let (platform, user) = (platform.unwrap_or_default(), user.unwrap_or_default());
            Ok(Tenant::new(&platform, &user, chat.as_deref())?)
        }
        Some(_) => Err(wrong("tenant", WANTED)),
        None => Err(wrong("tenant", &format!("is missing; it {WANTED}"))),
    }
}

fn text(field: &str, value: Option<Value>) -> Result<Option<String>, Problem> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(field, "must be a string")),
    }
}

fn flag(field: &str, value: Option<Value>) -> Result<Option<bool>, Problem> {
    match value {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(_) => Err(wrong(field, "must be true or false")),
    }
}

fn timeout(value: Option<Value>) -> Result<Option<Duration>, Problem> {
    let Some(value) = value else { return Ok(None) };
    let millis = value.as_u64().filter(|millis| *millis > 0);
    let timeout = millis.map(Duration::from_millis).filter(|timeout| *timeout <= LONGEST);
    let rule = "must be a whole number of milliseconds, from 1 to a year";
    timeout.map(Some).ok_or_else(|| wrong("timeoutMs", rule))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<Asked, Problem> {
        let Value::Object(fields) = body else { panic!("no object") };
        Asked::read(fields)
    }

    #[test]
    fn a_body_is_read_whole() {
        let asked = read(json!({
            "tenant": {"platform": "telegram", "userId": "42", "chatId": "7"}, "priority": "admin",
            "sessionId": "s-1", "message": "hello", "timeoutMs": 1500, "idempotent": true,
            "wait": false, "colour": "red",
        }))
        .unwrap();
        assert_eq!(asked.ask.tenant, Tenant::new("telegram", "42", Some("7")).unwrap());
        assert_eq!((asked.ask.priority, asked.ask.idempotent), (Priority::Admin, true));
        assert_eq!(asked.ask.timeout, Some(Duration::from_millis(1500)));
        assert_eq!((asked.waits, asked.unknown), (false, vec!["colour".to_owned()]));
        let asked = read(json!({"tenant": "web:1", "message": "x", "sessionId": null})).unwrap();
        assert_eq!((asked.waits, asked.ask.session), (true, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |name: &str, value: Value| {
            let mut body = json!({"tenant": "web:1", "message": "x"});
            body[name] = value;
            body
        };
        let cases = [
            (json!({"message": "x"}), "tenant"),
            (json!({"tenant": "web:1"}), "message"),
            (with("message", json!(7)), "message"),
            (with("tenant", json!("web")), "tenant"),
            (with("tenant", json!(7)), "tenant"),
            (with("tenant", json!({"platform": "web"})), "tenant.userId"),
            (with("tenant", json!({"userId": "1"})), "tenant.platform"),
            (with("tenant", json!({"platform": "web", "userId": 7})), "tenant.userId"),
            (with("tenant", json!({"platform": "web", "userId": "7", "chat": "c"})), "tenant.chat"),
            (with("priority", json!("urgent")), "priority"),
            (with("sessionId", json!("-rf")), "sessionId"),
            (with("timeoutMs", json!(0)), "timeoutMs"),
            (with("timeoutMs", json!("1s")), "timeoutMs"),
            (with("timeoutMs", json!(-1)), "timeoutMs"),
            (with("timeoutMs", json!(u64::MAX)), "timeoutMs"),
            (with("idempotent", json!(1)), "idempotent"),
            (with("wait", json!("yes")), "wait"),
        ];
        for (body, field) in cases {
            let problem = read(body).unwrap_err().to_json();
            assert_eq!(
                (&problem["status"], &problem["field"]),
                (&json!(422), &json!(field)),
                "{problem}"
            );
        }
    }
}
