//! Changes to a settings file that preserve the rest of it, including comments.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{Mistake, Mistakes, Settings};

/// A settings file under change.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    file: PathBuf,
    document: DocumentMut,
}

impl Edit {
    /// Reads the file at `path`, which must be valid.
    ///
    /// # Errors
    /// The mistakes in it.
    pub(crate) fn read(path: &Path) -> Result<Self, Mistakes> {
        let text = fs::read_to_string(path).map_err(|e| Mistake::unreadable(path, &e))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Mistakes> {
        Settings::parse(path, text)?;
        let document = text.parse().expect("the text was parsed a moment ago");
        Ok(Self { file: path.into(), document })
    }

    /// Whether the section `[volume.<name>]` exists.
    pub(crate) fn has_volume(&self, name: &str) -> bool {
        self.section("volume").is_some_and(|volumes| volumes.contains_key(name))
    }

    /// Adds `[volume.<name>]` with these keys.
    ///
    /// # Errors
    /// The key whose value has no form in TOML.
    pub(crate) fn add_volume(
        &mut self,
        name: &str,
        keys: &Map<String, Json>,
    ) -> Result<(), String> {
        let mut section = Table::new();
        // Puts path and contract before all other keys.
        let rank = |key: &str| ["contract", "path"].iter().position(|first| *first == key);
        let mut keys: Vec<_> = keys.iter().collect();
        keys.sort_by_key(|(key, _)| std::cmp::Reverse(rank(key)));
        for (key, value) in keys {
            let value = toml(value).ok_or_else(|| format!("volume.{name}.{key}: found {value}"))?;
            section.insert(key, Item::Value(value));
        }
        let volumes = self.document.get_mut("volume").and_then(Item::as_table_like_mut);
        volumes.expect("a right file has volumes").insert(name, Item::Table(section));
        Ok(())
    }

    /// Adds a volume to the pool; does nothing if the pool has it.
    pub(crate) fn join_pool(&mut self, pool: &str, volume: &str) {
        let volumes = self.pool_volumes(pool);
        if volumes.iter().any(|name| name.as_str() == Some(volume)) {
            return;
        }
        // On its own line if the others are.
        let like = volumes.iter().last().map(|last| last.decor().clone());
        volumes.push(volume);
        let before = like.as_ref().and_then(|like| like.prefix()?.as_str());
        // Without a comment that belongs to the previous one.
        let before = before.and_then(|text| text.get(text.rfind('\n')?..));
        if let (Some(before), Some(new)) = (before, volumes.len().checked_sub(1)) {
            let before = before.to_owned();
            volumes.get_mut(new).expect("it was pushed").decor_mut().set_prefix(before);
        }
    }

    /// Removes `[volume.<name>]`, and the volume from the pool.
    pub(crate) fn remove_volume(&mut self, pool: &str, name: &str) {
        let volumes = self.pool_volumes(pool);
        volumes.retain(|volume| volume.as_str() != Some(name));
        // The first element has no space before it.
        if let Some(first) = volumes.get_mut(0)
            && first.decor().prefix().and_then(|text| text.as_str()) == Some(" ")
        {
            first.decor_mut().set_prefix("");
        }
        if let Some(all) = self.document.get_mut("volume").and_then(Item::as_table_like_mut) {
            all.remove(name);
        }
    }

    /// The whole changed file.
    pub(crate) fn text(&self) -> String {
        self.document.to_string()
    }

    /// The resulting settings.
    ///
    /// # Errors
    /// The mistakes.
    pub(crate) fn settings(&self) -> Result<Settings, Mistakes> {
        Settings::parse(&self.file, &self.text())
    }

    /// The file's lines about a volume, and the volumes of the pool.
    pub(crate) fn lines(&self, pool: &str, volume: &str) -> String {
        let mut lines = String::new();
        if let Some(section) = self.section("volume").and_then(|volumes| volumes.get(volume)) {
            lines.push_str(&format!("[volume.{volume}]\n"));
            let keys = section.as_table_like().into_iter().flat_map(|keys| keys.iter());
            for (key, value) in keys {
                lines.push_str(&format!("{key} = {}\n", value.to_string().trim()));
            }
            lines.push('\n');
        }
        let volumes = self.section("pool").and_then(|pools| pools.get(pool)?.get("volumes"));
        let names = volumes.and_then(Item::as_array).into_iter().flatten();
        let names: Array = names.filter_map(Value::as_str).collect();
        lines + &format!("[pool.{pool}]\nvolumes = {names}\n")
    }

    /// Replaces the file atomically; durable on return. Keeps the file's permissions.
    ///
    /// # Errors
    /// The file is unchanged.
    pub(crate) fn write(&self) -> io::Result<()> {
        // Follows a link, so that the link itself stays.
        let file = self.file.canonicalize()?;
        let dir = file.parent().unwrap_or(Path::new("/"));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let new = dir.join(format!(".{name}.new"));
        let kept = file.metadata()?.permissions();
        let written = (|| {
            let mut out = File::create(&new)?;
            out.set_permissions(fs::Permissions::from_mode(kept.mode()))?;
            out.write_all(self.text().as_bytes())?;
            out.sync_all()?;
            fs::rename(&new, &file)?;
            File::open(dir)?.sync_all()
        })();
        if written.is_err() {
            // Best effort: the error says what went wrong.
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn section(&self, name: &str) -> Option<&dyn TableLike> {
        self.document.get(name)?.as_table_like()
    }

    fn pool_volumes(&mut self, pool: &str) -> &mut Array {
        let pools = self.document.get_mut("pool").and_then(|pools| pools.get_mut(pool));
        let volumes = pools.and_then(|pool| pool.get_mut("volumes")?.as_array_mut());
        volumes.expect("a right file has the pool, with volumes")
    }
}

/// A value in TOML; `None` for null.
fn toml(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => {
            Value::Array(items.iter().map(toml).collect::<Option<Vec<_>>>()?.into_iter().collect())
        }
        Json::Object(keys) => {
            let mut table = InlineTable::new();
            for (key, value) in keys {
                table.insert(key, toml(value)?);
            }
            Value::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    const FILE: &str = r#"# Ours.
[volume.a] # the first
path = "/mnt/a"
contract = "gp3"

[volume.b]
path = "/mnt/b"   # slow
contract = "gp3"

[pool.main]
volumes = ["a", "b"]

# Its password is elsewhere.
[kv]
pool = "main"
"#;

    fn edit(text: &str) -> Edit {
        Edit::parse(Path::new("plimsoll.toml"), text).expect("it is right")
    }

    fn keys(value: &Json) -> &Map<String, Json> {
        value.as_object().expect("an object")
    }

    fn added(text: &str) -> Edit {
        let mut edit = edit(text);
        let value = json!({ "path": "/mnt/f", "contract": { "iops": 5000 }, "adapt": false });
        edit.add_volume("f", keys(&value)).expect("all can be said");
        edit.join_pool("main", "f");
        edit
    }

    #[test]
    fn a_volume_is_added_and_all_else_stays() {
        let edit = added(FILE);
        expect![[r##"
            # Ours.
            [volume.a] # the first
            path = "/mnt/a"
            contract = "gp3"

            [volume.b]
            path = "/mnt/b"   # slow
            contract = "gp3"

            [volume.f]
            path = "/mnt/f"
            contract = { iops = 5000 }
            adapt = false

            [pool.main]
            volumes = ["a", "b", "f"]

            # Its password is elsewhere.
            [kv]
            pool = "main"
        "##]]
        .assert_eq(&edit.text());
        let settings = edit.settings().expect("it is right");
        assert_eq!(settings.roots()[0].volumes, ["a", "b", "f"]);
        expect![[r#"
            [volume.f]
            path = "/mnt/f"
            contract = { iops = 5000 }
            adapt = false

            [pool.main]
            volumes = ["a", "b", "f"]
        "#]]
        .assert_eq(&edit.lines("main", "f"));
    }

    #[test]
    fn what_was_added_and_removed_leaves_nothing() {
        let mut edit = added(FILE);
        edit.remove_volume("main", "f");
        assert_eq!(edit.text(), FILE);
        edit.remove_volume("main", "a");
        let settings = edit.settings().expect("it is right");
        assert_eq!(settings.roots()[0].volumes, ["b"]);
        assert!(edit.text().contains("volumes = [\"b\"]"), "{}", edit.text());
    }

    #[test]
    fn lists_on_several_lines_stay_so() {
        let text = FILE.replace("[\"a\", \"b\"]", "[\n  \"a\", # here\n  \"b\",\n]");
        let text = added(&text).text();
        assert!(text.contains("[\n  \"a\", # here\n  \"b\",\n  \"f\",\n]"), "{text}");
    }

    #[test]
    fn other_ways_to_write_sections_are_understood() {
        let inline = "volume.a = { path = \"/mnt/a\", contract = \"gp3\" }\n\
                      pool = { main = { volumes = [\"a\"] } }\nkv = { pool = \"main\" }\n";
        let settings = added(inline).settings().expect("it is right");
        assert_eq!(settings.roots()[0].volumes, ["a", "f"]);
    }

    #[test]
    fn what_would_be_wrong_is_found_before_it_is_written() {
        let mut edit = edit(FILE);
        edit.add_volume("f", keys(&json!({ "path": "/mnt/a", "contract": "gp3" }))).expect("words");
        edit.join_pool("main", "f");
        let mistake = edit.settings().expect_err("one directory twice").to_string();
        assert!(mistake.contains("volume.f.path: found the path of volume.a"), "{mistake}");
        let error = edit.add_volume("g", keys(&json!({ "path": null }))).expect_err("nothing");
        assert_eq!(error, "volume.g.path: found null");
    }

    #[test]
    fn the_file_is_replaced_whole_and_keeps_its_permissions() {
        let place = tempfile::tempdir().expect("room for a directory");
        let (file, link) = (place.path().join("real.toml"), place.path().join("plimsoll.toml"));
        fs::write(&file, FILE).expect("room for a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        std::os::unix::fs::symlink("real.toml", &link).expect("room for a link");
        let mut edit = Edit::read(&link).expect("it is right");
        assert!(!edit.has_volume("f") && edit.has_volume("b"));
        edit.remove_volume("main", "b");
        edit.write().expect("room for a file");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), edit.text());
        assert!(link.is_symlink());
        assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(place.path()).expect("it is there").count(), 2, "nothing is left");
    }
}
