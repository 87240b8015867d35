package settings

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// Lacks notes that something is missing, unless something is noted already.
func (s *Settings) Lacks(what string) { s.Missing = cmp.Or(s.Missing, what) }

// value parses the content of a file. If the file is missing or parse fails, it notes so and returns false.
func value[T any](s *Settings, file, as string, parse func(string) (T, error)) (v T, ok bool) {
	text, ok := s.Files[file]
	if !ok {
		s.Lacks(file)
		return v, false
	}
	v, err := parse(text)
	if err != nil {
		s.Lacks(file + " as a " + as)
	}
	return v, err == nil
}

// Number returns the number in a file.
func (s *Settings) Number(file string) (int64, bool) {
	return value(s, file, "number", func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
}

// Mask returns the cpumask in a file.
func (s *Settings) Mask(file string) (cpuset.Set, bool) {
	return value(s, file, "cpumask", cpuset.ParseMask)
}

// List returns the cpulist in a file.
func (s *Settings) List(file string) (cpuset.Set, bool) {
	return value(s, file, "cpulist", cpuset.Parse)
}

// Chosen returns the choice in brackets in a file: "always [madvise] never".
func (s *Settings) Chosen(file string) (string, bool) {
	return value(s, file, "choice in brackets", func(text string) (string, error) {
		choice := host.Chosen(text)
		if choice == text {
			return "", strconv.ErrSyntax
		}
		return choice, nil
	})
}

// AllTasks returns the threads of the machine.
func (s *Settings) AllTasks() []Task {
	if s.Tasks == nil {
		s.Lacks("/proc/*/task/*/status")
	}
	return s.Tasks
}

// Runs reports whether a thread has this name.
func (s *Settings) Runs(name string) bool {
	return slices.ContainsFunc(s.Tasks, func(t Task) bool { return t.Name == name })
}

// Matching returns the paths that match a pattern of path.Match, in natural order. No match is noted.
func (s *Settings) Matching(pattern string) []string {
	paths := s.Optional(pattern)
	if len(paths) == 0 {
		s.Lacks(pattern)
	}
	return paths
}

// Optional is like Matching, but there may be none.
func (s *Settings) Optional(pattern string) []string {
	var paths []string
	for p := range s.Files {
		if ok, _ := path.Match(pattern, p); ok { // the patterns are well formed
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // cpu9 before cpu10
	})
	return paths
}

// Cgroups returns the paths of a file in all cgroups below a directory.
func (s *Settings) Cgroups(dir, file string) []string {
	var paths []string
	for depth := range cgroupDepth {
		paths = append(paths, s.Optional(dir+strings.Repeat("/*", depth+1)+"/"+file)...)
	}
	return paths
}

// CPUOf returns the number in an element of a path, such as cpu7 or machinecheck7, or -1 if there is none.
func CPUOf(file, prefix string) int {
	for part := range strings.SplitSeq(file, "/") {
		if n, ok := strings.CutPrefix(part, prefix); ok {
			if id, err := strconv.Atoi(n); err == nil {
				return id
			}
		}
	}
	return -1
}
