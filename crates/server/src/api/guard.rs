//! Who may do what.
//!
//! 1. With a token set, whoever asks shows it, or the cookie of a login; health and the page that
//!    asks for the token are open. The read token may only look, ask the event store, and log out.
//! 2. Without one, only pages and programs of this machine are served: a foreign `Host` is a name
//!    that somebody bent to this address, a foreign `Origin` is somebody else's page.
//! 3. Tokens are compared by their codes under a key of this process: in a time that says nothing of
//!    either, not even of their lengths.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::problem::{Code, Problem};
use crate::settings::{Secret, ServerSettings};
use crate::time::Timestamp;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Look.
    Read,
    /// Everything.
    Operate,
}

/// Who asks: somebody with a role, or nobody in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) Option<Role>);

/// Lets requests in.
pub(crate) struct Guard {
    /// Of this process alone: cookies end with it.
    key: hmac::Key,
    tokens: Vec<(Role, hmac::Tag)>,
    /// Cookies know no ports, so their names do.
    cookie: String,
    local: IpAddr,
}

/// Where a browser forgets its login: that changes nothing for anybody else.
const LOGOUT: &str = "/logout";

/// How long a login holds.
const LOGIN: Duration = Duration::from_secs(12 * 60 * 60);

impl Guard {
    /// A guard by the settings, for a server at that address.
    pub(crate) fn new(settings: &ServerSettings, local: SocketAddr) -> std::io::Result<Self> {
        let failed = |_| std::io::Error::other("the system has no random numbers");
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(failed)?;
        let given = [(Role::Operate, &settings.token), (Role::Read, &settings.read_token)];
        let code = |(role, token): (Role, &Option<Secret>)| {
            let token = token.as_ref()?;
            Some((role, hmac::sign(&key, token.expose().as_bytes())))
        };
        let tokens = given.into_iter().filter_map(code).collect();
        let cookie = format!("sluicegate_{}", local.port());
        Ok(Self { key, tokens, cookie, local: local.ip() })
    }

    /// Whether a token is asked for at all.
    pub(crate) const fn asks(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Lets a request in, or says why not.
    pub(crate) fn admit(&self, request: &Parts) -> Result<Caller, Problem> {
        if !self.asks() {
            self.is_local(request)?;
            return Ok(Caller(Some(Role::Operate)));
        }
        let role = self.role(request);
        if is_open(request.uri.path()) {
            return Ok(Caller(role.ok()));
        }
        let role = role?;
        let path = request.uri.path();
        let looks = is_safe(&request.method) || asks_only(path) || path == LOGOUT;
        if role == Role::Read && !looks {
            let detail = "this token may only look: use the one of server.token";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        Ok(Caller(Some(role)))
    }

    fn role(&self, request: &Parts) -> Result<Role, Problem> {
        let wrong = |detail| Problem::new(Code::Unauthorized, detail);
        if let Some(given) = request.headers.get(AUTHORIZATION) {
            let bearer = given.to_str().ok().and_then(|given| given.split_once(' '));
            let token = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let (_, token) =
                token.ok_or_else(|| wrong("Authorization must be `Bearer` and the token"))?;
            return self.role_of(token.trim()).ok_or_else(|| wrong("the token is wrong"));
        }
        let role = self.logged_in(&request.headers);
        let role = role.ok_or_else(|| wrong("a token is needed, as `Authorization: Bearer …`"))?;
        if !is_safe(&request.method) {
            self.is_own_page(&request.headers)?;
        }
        Ok(role)
    }

    /// What the holder of a token may do. Every token is compared, whichever fits.
    pub(crate) fn role_of(&self, token: &str) -> Option<Role> {
        let mut found = None;
        for (role, code) in &self.tokens {
            if hmac::verify(&self.key, token.as_bytes(), code.as_ref()).is_ok() {
                found = Some(*role);
            }
        }
        found
    }

    /// The cookie of a login.
    pub(crate) fn cookie(&self, role: Role, now: Timestamp) -> String {
        let until = now.as_second().saturating_add_unsigned(LOGIN.as_secs());
        let claim = format!("{}.{until}", word(role));
        let code = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, claim.as_bytes()));
        let (name, age) = (&self.cookie, LOGIN.as_secs());
        format!("{name}={claim}.{code}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict")
    }

    /// The cookie that ends a login.
    pub(crate) fn no_cookie(&self) -> String {
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.cookie)
    }

    fn logged_in(&self, headers: &HeaderMap) -> Option<Role> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let mut own = pairs.filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = own.find(|(name, _)| *name == self.cookie)?;
        let (claim, code) = value.rsplit_once('.')?;
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        hmac::verify(&self.key, claim.as_bytes(), &code).ok()?;
        let (role, until) = claim.split_once('.')?;
        let until: i64 = until.parse().ok()?;
        (Timestamp::now().as_second() < until).then_some(())?;
        [Role::Read, Role::Operate].into_iter().find(|known| word(*known) == role)
    }

    /// A cookie comes along with what other pages of this machine send, too.
    pub(crate) fn is_own_page(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
            Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(foreign_origin()),
            None => same_origin(headers, header(headers, HOST.as_str())?),
        }
    }

    /// Whether a request is meant for this machine, and comes from no foreign page.
    fn is_local(&self, request: &Parts) -> Result<(), Problem> {
        let given = header(&request.headers, HOST.as_str())?;
        let absolute = request.uri.authority().map(http::uri::Authority::as_str);
        for host in given.into_iter().chain(absolute) {
            if !self.is_own_name(host) {
                let detail = "without a token only requests to localhost are served";
                return Err(Problem::new(Code::ForeignHost, detail));
            }
        }
        same_origin(&request.headers, given.or(absolute))
    }

    fn is_own_name(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback() || address == self.local,
            Err(_) => {
                let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost")
            }
        }
    }
}

/// A header that may be there once.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut given = headers.get_all(name).iter();
    let (first, second) = (given.next(), given.next());
    let text = first.map(|first| first.to_str()).transpose();
    match (text, second) {
        (Ok(text), None) => Ok(text),
        _ => Err(Problem::parameter(name, format!("there must be one readable `{name}` header"))),
    }
}

/// Whether a request that comes from a page comes from one of ours.
fn same_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Problem> {
    let Some(origin) = header(headers, ORIGIN.as_str())? else { return Ok(()) };
    let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    match of.zip(host) {
        Some((of, host)) if of.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(foreign_origin()),
    }
}

fn foreign_origin() -> Problem {
    Problem::new(Code::ForeignOrigin, "requests from pages of other sites are not served")
}

/// What needs no token: health, and where the browser asks for one.
fn is_open(path: &str) -> bool {
    path == "/" || path == "/login" || path == "/health" || path.starts_with("/health/")
}

/// What is asked with a body and changes nothing, whatever the method says.
pub(crate) fn asks_only(path: &str) -> bool {
    ["/api/v1/events/query", "/api/v1/events/project"].contains(&path)
}

/// Whether a method only looks.
pub(crate) fn is_safe(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

const fn word(role: Role) -> &'static str {
    match role {
        Role::Read => "read",
        Role::Operate => "operate",
    }
}
