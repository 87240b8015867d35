package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// key is the variable that editGRUB edits. GRUB uses it before the variable with _DEFAULT.
const key = "GRUB_CMDLINE_LINUX"

// assignment is a line of a shell file that sets key, or key with _DEFAULT.
type assignment struct {
	line  int // counted from 0
	name  string
	text  string // after the =
	plain bool   // nothing precedes the name, and it does not append
}

func assignments(lines []string) (all []assignment) {
	sets := regexp.MustCompile(`^(\s*(?:export\s+)?)(` + key + `(?:_DEFAULT)?)(\+?)=(.*)$`)
	for i, line := range lines {
		if m := sets.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			all = append(all, assignment{i, m[2], m[4], m[1] == "" && m[3] == ""})
		}
	}
	return all
}

// words returns the parameters of a value of words only, possibly in quotes; false for any other value.
func (a assignment) words() ([]string, bool) {
	value, quote := strings.TrimSpace(a.text), ""
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		quote, value = value[:1], value[1:n-1]
	}
	if strings.ContainsAny(value, "$`\\\"'") || quote == "" && strings.ContainsAny(value, " #;&|<>()") {
		return nil, false
	}
	return strings.Fields(value), true
}

// nameOf returns the name of a parameter as the kernel compares it.
func nameOf(parameter string) string {
	name, _, _ := strings.Cut(parameter, "=")
	return strings.ReplaceAll(name, "-", "_")
}

// clash returns a parameter of an assignment that is also among words; "": none. A number of hugepages
// belongs to the size named before it, wherever that is.
func (a assignment) clash(words []Word) string {
	names := map[string]bool{}
	for _, w := range words {
		for _, f := range strings.Fields(w.Word) {
			names[nameOf(f)] = true
		}
	}
	between := func(c rune) bool { return strings.ContainsRune(" \t\"'", c) }
	for _, f := range strings.FieldsFunc(a.text, between) {
		if names[nameOf(f)] {
			return f
		}
	}
	return ""
}

// grubLine returns index and words of the only line that sets key; -1: none. The error says why not to edit.
func grubLine(lines []string, words []Word) (at int, value []string, err error) {
	at = -1
	for _, a := range assignments(lines) {
		switch clash := a.clash(words); {
		case a.name != key && clash != "":
			return at, nil, fmt.Errorf("line %d: %s has %s, which comes behind that of %s: remove it, and apply again",
				a.line+1, a.name, clash, key)
		case a.name != key:
			continue
		case !a.plain:
			return at, nil, fmt.Errorf("line %d: %s is set with more than its name before the =: edit it by hand",
				a.line+1, key)
		case at >= 0:
			return at, nil, fmt.Errorf("line %d: a second %s=: leave one", a.line+1, key)
		}
		plain := false
		at = a.line
		if value, plain = a.words(); !plain {
			return at, nil, fmt.Errorf("line %d: %s= holds more than plain words: edit it by hand", at+1, key)
		}
	}
	return at, value, nil
}

// checkDropIns checks the folder beside GRUB's defaults file whose files are read after it (Debian).
func checkDropIns(name string, words []Word) error {
	files, _ := filepath.Glob(name + ".d/*.cfg") // the pattern is valid
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, a := range assignments(strings.Split(string(text), "\n")) {
			keeps := strings.Contains(a.text, "$"+key) || strings.Contains(a.text, "${"+key)
			switch clash := a.clash(words); {
			case clash != "":
				return fmt.Errorf("%s: line %d: has %s, which comes behind that of %s: remove it, and apply again",
					file, a.line+1, clash, name)
			case a.name == key && a.plain && !keeps:
				return fmt.Errorf("%s: line %d: sets %s in place of %s: edit it by hand, or name it with --grub",
					file, a.line+1, key, name)
			}
		}
	}
	return nil
}

// editGRUB puts words into key of GRUB's defaults file. They replace parameters of the same names, and
// hugepages of the same sizes; the rest of the file stays. Editing twice has the effect of editing once.
func editGRUB(text string, words []Word) (string, error) {
	names, sizes := map[string]bool{}, map[uint64]bool{}
	var add []string
	for _, w := range words {
		fields := strings.Fields(w.Word)
		for i, size := range pageSizes(fields) {
			names[nameOf(fields[i])], sizes[size] = size == 0, true
		}
		add = append(add, fields...)
	}
	delete(sizes, 0)
	lines := strings.SplitAfter(text, "\n")
	at, fields, err := grubLine(lines, words)
	if err != nil {
		return "", err
	}
	var keep []string
	for i, size := range pageSizes(fields) {
		if !names[nameOf(fields[i])] && !sizes[size] {
			keep = append(keep, fields[i])
		}
	}
	return withLine(text, lines, at, append(keep, add...)), nil
}

// withLine returns the text with these words in place of line at, or in a new line.
func withLine(text string, lines []string, at int, words []string) string {
	line := key + "=\"" + strings.Join(words, " ") + "\"\n"
	if at >= 0 {
		lines[at] = line
		return strings.Join(lines, "")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		line = "\n" + line
	}
	return text + line
}

// undoGRUB returns the present GRUB defaults file with the parameters that lanes want as they were before.
func undoGRUB(now, before string) (string, error) {
	lines, old := strings.SplitAfter(now, "\n"), strings.SplitAfter(before, "\n")
	at, fields, err := grubLine(lines, nil)
	if err != nil || at < 0 {
		return now, err
	}
	was, words, err := grubLine(old, nil)
	if err != nil {
		return "", err
	}
	ours := func(f string) bool { return slices.Contains(strings.Fields(parameters), nameOf(f)) }
	theirs := func(f string) bool { return !ours(f) }
	keep, kept := slices.DeleteFunc(slices.Clone(fields), ours), slices.DeleteFunc(slices.Clone(words), ours)
	switch {
	case slices.Equal(keep, kept) && was >= 0:
		lines[at] = old[was]
	case slices.Equal(keep, kept):
		lines[at] = ""
	default:
		return withLine(now, lines, at, append(keep, slices.DeleteFunc(words, theirs)...)), nil
	}
	text := strings.Join(lines, "")
	if strings.TrimRight(text, "\n") == strings.TrimRight(before, "\n") {
		return before, nil
	}
	return text, nil
}
