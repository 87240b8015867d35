package isolane_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "isolane.dev/isolane"

// imports is the architecture: which of our packages each package may import. A path with /* at
// its end stands for all packages below it.
func imports() map[string][]string {
	return map[string][]string{
		"cpuset": {}, "quantity": {}, "terminal": {}, "stats": {}, "noise": {}, "scenarios": {}, "examples": {},
		"journal":         {"cpuset", "host"},
		"results":         {"cpuset"},
		"host":            {"cpuset"},
		"host/hosttest":   {"cpuset", "host"},
		"lane":            {"quantity"},
		"audit":           {"cpuset", "host", "quantity", "terminal"},
		"plan":            {"cpuset", "host", "lane", "quantity"},
		"cores":           {"cpuset", "lane", "plan"},
		"draw":            {"cpuset", "host", "plan", "quantity", "terminal"},
		"enforce":         {"cpuset", "host", "journal", "lane", "plan", "quantity"},
		"netpath":         {"journal"},
		"netpath/*":       {"journal", "netpath"},
		"runtime/process": {"cpuset", "journal"},
		"runtime/running": {"cpuset", "enforce", "host", "journal", "plan"},
		"runtime/spread":  {"cpuset", "host", "journal"},
		"lanes": {"cpuset", "enforce", "host", "journal", "lane", "plan", "quantity", "runtime/process", "runtime/running",
			"runtime/spread"},
		"witness": {"cpuset", "host", "results"},
		"probe":   {},
		"probe/*": {"probe", "results"},
		"prove": {"cpuset", "enforce", "host", "journal", "lane", "lanes", "netpath", "noise", "plan", "probe", "quantity",
			"results", "runtime/process", "stats", "witness"},
		"report":         {"cpuset", "quantity", "results", "stats", "terminal"},
		"examples/embed": {"lane", "lanes"}, // a module of its own
		"cmd/isolane":    {"*"},
		"test/*":         {"cpuset", "host/hosttest"},
		"bench":          {"netpath", "netpath/*", "journal", "probe", "probe/echo", "results"},
		// The module of the virtual machines, which knows Isolane as a program only.
		"lab": {}, "lab/cmd/isolane-lab": {"lab"},
	}
}

// The sources are read here and not with `go list`: the go command caches a test that starts
// another process, and would answer from the cache after the layering was broken.
func TestImports(t *testing.T) {
	table := imports()
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := path.Dir(filepath.ToSlash(name))
		allowed, known := lookup(table, dir)
		if !known {
			t.Errorf("%s: package %s is not in the table of architecture_test.go: what is its one reason to exist?", name, dir)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			full, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			if strings.HasPrefix(full, "k8s.io/") || strings.HasPrefix(full, "sigs.k8s.io/") && full != "sigs.k8s.io/yaml" {
				t.Errorf("%s imports %s: Kubernetes belongs to a binary of its own", name, full)
			}
			ours, is := strings.CutPrefix(full, module+"/")
			if is && !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, ours) }) {
				t.Errorf("%s imports %s; %s may import %s", name, ours, dir, strings.Join(allowed, ", "))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func lookup(table map[string][]string, dir string) ([]string, bool) {
	for pattern, allowed := range table {
		if matches(pattern, dir) {
			return allowed, true
		}
	}
	return nil, false
}

func matches(pattern, dir string) bool {
	if parent, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(dir, parent)
	}
	return pattern == dir
}
