//! Checks answers against the schemas of `/openapi.json`, as far as those go.

use serde_json::Value;

use super::stage::{Reply, Stage};

/// What the document says.
pub(crate) struct Document(pub(crate) Value);

impl Document {
    pub(crate) async fn of(stage: &Stage) -> Self {
        let reply = stage.get("/openapi.json").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        Self(reply.json())
    }

    /// What a reference points to.
    pub(crate) fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let Some(reference) = schema["$ref"].as_str() else { return schema };
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
        self.0.pointer(pointer).unwrap_or_else(|| panic!("{reference} points to nothing"))
    }

    /// Checks that an answer is what the document says of this path and method.
    pub(crate) fn check(&self, method: &str, path: &str, reply: &Reply) {
        let responses = &self.0["paths"][path][method]["responses"];
        let response = &responses[reply.status.to_string()];
        assert!(response.is_object(), "{method} {path} says nothing of {}", reply.status);
        let Some((media, content)) =
            response["content"].as_object().and_then(|content| content.iter().next())
        else {
            assert!(reply.body.is_empty(), "{method} {path}: {reply:?}");
            return;
        };
        let given = reply.header("content-type").unwrap_or_default();
        assert!(given.starts_with(media), "{method} {path}: {given} is not {media}");
        if media.contains("json") {
            self.fits(&content["schema"], &reply.json(), &format!("{method} {path}"));
        }
    }

    fn fits(&self, schema: &Value, value: &Value, at: &str) {
        if let Err(why) = self.try_fit(schema, value, at) {
            panic!("{why}");
        }
    }

    fn try_fit(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schema = self.resolve(schema);
        let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
        if let Some(any) = schema["oneOf"].as_array() {
            let fitting = any.iter().filter(|one| self.try_fit(one, value, at).is_ok()).count();
            return if fitting == 1 { Ok(()) } else { wrong("not one of them") };
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.try_fit(part, value, at)?;
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            return wrong("not one of the words");
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|name| is_a(name, value)) {
            return wrong(&format!("not {types:?}"));
        }
        if schema["format"] == "date-time"
            && value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_err())
        {
            return wrong("no time");
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            if value.get(name.as_str().unwrap_or_default()).is_none() {
                return wrong(&format!("{name} is missing"));
            }
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(value) = value.get(name) {
                self.try_fit(schema, value, &format!("{at}.{name}"))?;
            }
        }
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            if schema.get("items").is_some() {
                self.try_fit(&schema["items"], value, &format!("{at}[{index}]"))?;
            }
        }
        Ok(())
    }
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}
