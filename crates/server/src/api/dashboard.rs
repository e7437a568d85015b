//! The page at `/`, and the login that it asks for when there is a token.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Api;
use super::guard::Caller;
use super::problem::Problem;
use super::reply::{done, typed};
use crate::time::Timestamp;

const DASHBOARD: &str = include_str!("dashboard.html");
const LOGIN: &str = include_str!("login.html");
/// Where the login page says what went wrong.
const WRONG: &str = "{{WRONG}}";

/// `GET /`
pub(crate) async fn page(
    State(api): State<Api>,
    Extension(Caller(role)): Extension<Caller>,
) -> Response {
    match role {
        None => login_page(StatusCode::OK, ""),
        Some(_) => {
            // What the page shows beside what it always does; its scripts stay as their hash has them.
            let mut more = String::new();
            for (name, is_so) in
                [("guarded", api.guard.asks()), ("agents", api.daemon.settings().agents.enabled)]
            {
                if is_so {
                    more.push_str(&format!("data-{name}=\"yes\" "));
                }
            }
            html(StatusCode::OK, DASHBOARD.replacen("<html ", &format!("<html {more}"), 1))
        }
    }
}

/// `POST /login`: `token=…`, as a form sends it.
pub(crate) async fn login(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    if !api.guard.asks() {
        return Ok(home(None));
    }
    api.guard.is_own_page(&headers)?;
    let form = api.intake.whole(&api.cx, body, super::intake::TINY).await?;
    let mut fields = url::form_urlencoded::parse(&form.bytes);
    let token = fields.find(|(name, _)| name == "token").map(|(_, token)| token);
    let role = token.and_then(|token| api.guard.role_of(token.trim()));
    Ok(match role {
        Some(role) => home(Some(&api.guard.cookie(role, Timestamp::now()))),
        None => login_page(StatusCode::UNAUTHORIZED, "This token is wrong."),
    })
}

/// `POST /logout`
pub(crate) async fn logout(State(api): State<Api>) -> Response {
    home(Some(&api.guard.no_cookie()))
}

/// Sends a browser to the page.
fn home(cookie: Option<&str>) -> Response {
    let mut response = done();
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    let cookie = cookie.map(HeaderValue::from_str).transpose();
    match cookie {
        Ok(cookie) => headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie))),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
    response
}

fn login_page(status: StatusCode, wrong: &str) -> Response {
    html(status, LOGIN.replacen(WRONG, wrong, 1))
}

/// A page that may run and show only what is in it.
fn html(status: StatusCode, page: String) -> Response {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let scripts = hash(DASHBOARD, "script");
        let styles = [DASHBOARD, LOGIN].map(|page| hash(page, "style")).join(" ");
        let policy = format!(
            "default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; \
             img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        HeaderValue::try_from(policy).expect("hashes in base64 are visible ASCII")
    });
    let mut response = typed(status, "text/html; charset=utf-8", page);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The hash of what an element of a page holds, as a policy names it.
fn hash(page: &str, element: &str) -> String {
    let inside = page
        .split_once(&format!("<{element}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{element}>")))
        .map_or("", |(inside, _)| inside);
    let hash = digest::digest(&digest::SHA256, inside.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(hash))
}
