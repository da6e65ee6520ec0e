//! Parameters of a request, from its address and from a form in its body.

use std::borrow::Cow;

/// Names and values, in their given order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// The parameters of an address, then those of a body.
    pub(super) fn of(address: Option<&str>, body: &[u8]) -> Self {
        let all = [address.unwrap_or_default().as_bytes(), body].into_iter();
        let own = |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into(), value.into());
        Self(all.flat_map(form_urlencoded::parse).map(own).collect())
    }

    /// The first value with this name, if it is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next().filter(|value| !value.is_empty())
    }

    /// Every value with this name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Whether the value of this name is `true` or `1`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }
}

#[cfg(test)]
mod tests {
    use super::Params;

    #[test]
    fn parameters_come_from_address_and_body() {
        let params = Params::of(Some("db=a%20b&epoch=&pretty=true"), b"q=SELECT+1&db=c");
        assert_eq!(params.get("db"), Some("a b"));
        assert_eq!(params.all("db").collect::<Vec<_>>(), ["a b", "c"]);
        assert_eq!(params.get("q"), Some("SELECT 1"));
        assert_eq!(params.get("epoch"), None);
        assert!(params.is("pretty") && !params.is("chunked"));
    }
}
