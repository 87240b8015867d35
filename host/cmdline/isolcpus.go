package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Isolcpus is the parameter isolcpus= as the kernel parses it (housekeeping_isolcpus_setup in
// kernel/sched/isolation.c).
type Isolcpus struct {
	Flags   []string // those that the kernel knows; domain if there are none
	Skipped []string // words that the kernel takes for flags of other versions, such as "all"
	Invalid string   // a word for which the kernel ignores the whole parameter: "N-7", "domain0"
	List    string   // the rest, a cpulist
}

const asciiLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Isolcpus parses isolcpus= as the kernel does. It returns false if the parameter is not given. Words that
// begin with a letter are flags, up to the first word that does not.
func (b Line) Isolcpus() (Isolcpus, bool) {
	value, ok := b.Get("isolcpus")
	var i Isolcpus
	for value != "" && strings.ContainsRune(asciiLetters, rune(value[0])) && i.Invalid == "" {
		word, rest, more := strings.Cut(value, ",")
		switch {
		case more && slices.Contains([]string{"nohz", "domain", "managed_irq"}, word):
			i.Flags = append(i.Flags, word)
		case strings.Trim(word, asciiLetters+"_") != "":
			i.Invalid = word
		default:
			i.Skipped = append(i.Skipped, word)
		}
		value = rest
	}
	if len(i.Flags) == 0 {
		i.Flags = []string{"domain"}
	}
	i.List = value
	return i, ok
}

// Has reports whether a flag is in force.
func (i Isolcpus) Has(flag string) bool { return i.Invalid == "" && slices.Contains(i.Flags, flag) }

// CPUs returns the CPUs of the list. The error says why the kernel isolates none.
func (i Isolcpus) CPUs(possible cpuset.Set) (cpuset.Set, error) {
	if i.Invalid != "" {
		err := fmt.Errorf("%q is no flag and no cpulist: the kernel ignores the whole parameter", i.Invalid)
		return cpuset.Set{}, err
	}
	set, err := cpuset.ParseWithin(i.List, possible)
	if err == nil && set.IsEmpty() {
		err = errors.New("there is no cpulist")
	}
	return set, err
}
