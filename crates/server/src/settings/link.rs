//! HTTP addresses of others, shown without what may be secret in them.

use std::fmt;

use url::Url;

use super::secret::MASK;

/// An `http://` or `https://` address. `Display` and `Debug` leave out credentials and the values
/// of the query.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl(Url);

impl HttpUrl {
    /// Reads an absolute address with a host.
    ///
    /// # Errors
    ///
    /// Says what is wrong, without the text: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, HttpUrlInvalid> {
        let url = Url::parse(text).map_err(HttpUrlInvalid::Malformed)?;
        if matches!(url.scheme(), "http" | "https") {
            Ok(Self(url))
        } else {
            Err(HttpUrlInvalid::Scheme)
        }
    }

    /// The whole address, with whatever secret is in it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.as_str()
    }

    /// Scheme, host and port.
    fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.0.path())?;
        let mut before = '?';
        for (name, _) in self.0.query_pairs() {
            write!(f, "{before}{name}={MASK}")?;
            before = '&';
        }
        Ok(())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An address to which whoever knows it may post: `Display` and `Debug` show only the host.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(HttpUrl);

impl WebhookUrl {
    /// Reads an absolute address with a host.
    ///
    /// # Errors
    ///
    /// Says what is wrong, without the text.
    pub fn parse(text: &str) -> Result<Self, HttpUrlInvalid> {
        HttpUrl::parse(text).map(Self)
    }

    /// The whole address.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{MASK}", self.0.origin())
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is no HTTP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpUrlInvalid {
    /// No address at all.
    Malformed(url::ParseError),
    /// Neither `http` nor `https`.
    Scheme,
}

impl fmt::Display for HttpUrlInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be an http:// or https:// address")?;
        match self {
            // Without a scheme there is nothing more to say.
            Self::Scheme | Self::Malformed(url::ParseError::RelativeUrlWithoutBase) => Ok(()),
            Self::Malformed(why) => write!(f, ": {why}"),
        }
    }
}

impl std::error::Error for HttpUrlInvalid {}

#[cfg(test)]
mod tests {
    use super::{HttpUrl, WebhookUrl};

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let cases = [
            ("http://example.com", "http://example.com/", "http://example.com/***"),
            (
                "https://me:tiger@example.com:8443/a/b?token=tiger&x=1#tiger",
                "https://example.com:8443/a/b?token=***&x=***",
                "https://example.com:8443/***",
            ),
            ("http://[::1]:80/x", "http://[::1]/x", "http://[::1]/***"),
        ];
        for (text, shown, webhook) in cases {
            let (url, hook) = (HttpUrl::parse(text).unwrap(), WebhookUrl::parse(text).unwrap());
            assert_eq!([url.to_string(), format!("{url:?}")], [shown, shown]);
            assert_eq!([hook.to_string(), format!("{hook:?}")], [webhook, webhook]);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_shown() {
        let cases = [
            ("tiger", "must be an http:// or https:// address"),
            ("", "must be an http:// or https:// address"),
            ("ftp://tiger", "must be an http:// or https:// address"),
            ("https://", "must be an http:// or https:// address: empty host"),
            ("http://a:99999/", "must be an http:// or https:// address: invalid port number"),
        ];
        for (text, message) in cases {
            assert_eq!(HttpUrl::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }
}
