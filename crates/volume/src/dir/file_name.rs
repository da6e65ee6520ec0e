//! The file names of objects.
//!
//! A slash is written as `%`. The name also says whether the object is a log: by custom the names of logs, and of no other
//! objects, end in `.log`. The file of an object that breaks the custom has a `%` at its end, where no name has a slash.
//!
//! | object | file |
//! |---|---|
//! | log `kv/7.log` | `kv%7.log` |
//! | data `kv/7.sst` | `kv%7.sst` |
//! | log `journal` | `journal%` |
//! | data `old.log` | `old.log%` |

use std::ffi::CStr;

use crate::Name;

/// The file of an object.
pub(super) fn file_name(name: &Name, is_log: bool) -> String {
    let mut file = name.as_str().replace('/', "%");
    if is_log != name.ends_as_log() {
        file.push('%');
    }
    file
}

/// The object in a file, and whether it is a log; `None` if no object has a file of this name.
pub(super) fn object_of(file: &CStr) -> Option<(Name, bool)> {
    let file = file.to_str().ok()?;
    let (name, breaks_custom) = match file.strip_suffix('%') {
        Some(name) => (name, true),
        None => (file, false),
    };
    let name = Name::new(&name.replace('%', "/")).ok()?;
    let is_log = name.ends_as_log() != breaks_custom;
    Some((name, is_log))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn each_object_of_each_kind_has_a_file_of_its_own() {
        for (object, is_log, file) in [
            ("kv/7.log", true, "kv%7.log"),
            ("kv/7.sst", false, "kv%7.sst"),
            ("kv/journal", true, "kv%journal%"),
            ("old.log", false, "old.log%"),
        ] {
            let name = Name::new(object).unwrap();
            assert_eq!(file_name(&name, is_log), file);
            assert_eq!(object_of(&CString::new(file).unwrap()), Some((name, is_log)));
        }
        assert_eq!(object_of(c"a%%"), None);
        assert_eq!(object_of(c"%"), None);
    }
}
