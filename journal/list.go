package journal

import "slices"

// list holds the steps that are done and not undone, with an index: a program may have a step for each of its
// threads.
type list struct {
	steps []Step
	at    map[[2]string]int // by kind and target
}

func (s Step) key() [2]string { return [2]string{s.Kind, s.Target} }

func (l *list) find(s Step) (Step, bool) {
	if i, is := l.at[s.key()]; is {
		return l.steps[i], true
	}
	return Step{}, false
}

func (l *list) put(s Step) {
	if l.at == nil {
		l.at = map[[2]string]int{}
	}
	i, is := l.at[s.key()]
	if !is {
		i, l.steps = len(l.steps), append(l.steps, s)
	}
	l.at[s.key()], l.steps[i] = i, s
}

// drop removes a step. It is fast for the last ones.
func (l *list) drop(s Step) {
	i, is := l.at[s.key()]
	if !is {
		return
	}
	delete(l.at, s.key())
	l.steps = slices.Delete(l.steps, i, i+1)
	for ; i < len(l.steps); i++ {
		l.at[l.steps[i].key()] = i
	}
}

func (l *list) open() []Step { return slices.Clone(l.steps) }
