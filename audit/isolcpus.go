package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// bootline is the command line with the questions that rules ask of it.
type bootline struct{ host.Bootline }

// isolcpus is the parameter of that name as the kernel takes it apart (housekeeping_isolcpus_setup
// in kernel/sched/isolation.c).
type isolcpus struct {
	flags   []string // that the kernel knows; domain where it knows none
	skipped []string // words that it takes for flags of other versions: "all" is one
	invalid string   // a word for which it ignores the whole parameter: "N-7", "domain0"
	list    string   // the rest, a cpulist
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isolation returns isolcpus= taken apart; false where it is not there. Words that begin with a letter
// are flags up to the first that begins otherwise.
func (b bootline) isolation() (isolcpus, bool) {
	value, ok := b.Get("isolcpus")
	var i isolcpus
	for value != "" && strings.ContainsRune(letters, rune(value[0])) && i.invalid == "" {
		word, rest, more := strings.Cut(value, ",")
		switch {
		case more && slices.Contains([]string{"nohz", "domain", "managed_irq"}, word):
			i.flags = append(i.flags, word)
		case strings.Trim(word, letters+"_") != "":
			i.invalid = word
		default:
			i.skipped = append(i.skipped, word)
		}
		value = rest
	}
	if len(i.flags) == 0 {
		i.flags = []string{"domain"}
	}
	i.list = value
	return i, ok
}

func (i isolcpus) has(flag string) bool { return i.invalid == "" && slices.Contains(i.flags, flag) }

// cpus are those of the list; the error says why the kernel takes none.
func (i isolcpus) cpus(possible cpuset.Set) (cpuset.Set, error) {
	if i.invalid != "" {
		return cpuset.Set{}, fmt.Errorf("%q is no flag and no cpulist: the kernel ignores the whole parameter", i.invalid)
	}
	set, err := cpuset.ParseWithin(i.list, possible)
	if err == nil && set.IsEmpty() {
		err = errors.New("there is no cpulist")
	}
	return set, err
}

// cpus returns the CPU list of a parameter other than isolcpus; false where it is missing or wrong.
func (b bootline) cpus(name string, possible cpuset.Set) (cpuset.Set, bool) {
	list, ok := b.Get(name)
	set, err := cpuset.ParseWithin(list, possible)
	return set, ok && err == nil && !set.IsEmpty()
}
