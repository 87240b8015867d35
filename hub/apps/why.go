package apps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// Reasons are in ConfigMaps of a namespace that no tenant reads, because they name lanes of others. There is
// one ConfigMap for each App, with a text for each of its hosts, and further texts under names that no host
// has. After the first keptWhole hosts only a host's own line is kept: then a ConfigMap has room for about a
// thousand hosts.
const (
	reasonsNamespace = "isolane-hub"
	pendingKey       = "_pending" // for Instances without a host
	withoutKey       = "_without" // for hosts whose texts are not kept
	keptWhole        = 16         // hosts whose texts are kept whole
	maxText          = 50000      // bytes of a text
	maxAllTexts      = 500000     // bytes of all of them
)

// keepWhy stores the texts of decisions, by host.
func (c *Controller) keepWhy(ctx context.Context, app string, decided map[string]string) error {
	if len(decided) == 0 {
		return nil
	}
	return c.editWhy(ctx, app, func(texts map[string]string) {
		maps.DeleteFunc(texts, func(host, _ string) bool { _, anew := decided[host]; return anew })
		size := 0
		for _, other := range texts {
			size += len(other)
		}
		for _, host := range slices.Sorted(maps.Keys(decided)) {
			text := truncate(decided[host])
			if lines := strings.SplitAfterN(text, "\n", 3); len(texts) >= keptWhole && len(lines) == 3 {
				text = lines[0] + lines[1]
			}
			if size += len(text); size < maxAllTexts {
				texts[host] = text
			}
		}
	})
}

// settleWhy keeps the texts of the hosts that an App is on, and drops the others. text says why the App is on
// no more hosts; "": there is nothing to say, nil: keep the present one.
func (c *Controller) settleWhy(ctx context.Context, app string, live []api.Instance, text *string) error {
	return c.editWhy(ctx, app, func(texts map[string]string) {
		if text == nil {
			text = new(texts[pendingKey])
		}
		maps.DeleteFunc(texts, func(host, _ string) bool {
			return !slices.ContainsFunc(live, func(i api.Instance) bool { return hostOf(i) == host })
		})
		if n := len(live) - len(texts); n > 0 {
			texts[withoutKey] = fmt.Sprintf("%s: of %d of its hosts no reasons are kept: kubectl get instances -A "+
				"-l %s=%[1]s lists them all\n", app, n, api.AppOf)
		}
		if *text != "" {
			texts[pendingKey] = truncate(*text)
		}
	})
}

func truncate(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "\n  …\n"
	}
	return text
}

// editWhy changes the texts of an App.
func (c *Controller) editWhy(ctx context.Context, app string, edit func(map[string]string)) error {
	kept := c.Core.CoreV1().ConfigMaps(reasonsNamespace)
	m, err := kept.Get(ctx, app, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	texts := maps.Clone(m.Data)
	if texts == nil {
		texts = map[string]string{}
	}
	edit(texts)
	if maps.Equal(texts, m.Data) {
		return nil
	}
	if m.Name, m.Data = app, texts; missing {
		_, err = kept.Create(ctx, m, metav1.CreateOptions{})
	} else {
		_, err = kept.Update(ctx, m, metav1.UpdateOptions{})
	}
	return err
}

func (c *Controller) forgetWhy(ctx context.Context, app string) error {
	err := c.Core.CoreV1().ConfigMaps(reasonsNamespace).Delete(ctx, app, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}

// Why returns why an App is where it is. The App is NAMESPACE/NAME, or a name in the namespace default.
func Why(ctx context.Context, core kubernetes.Interface, app string) (string, error) {
	space, name, given := strings.Cut(app, "/")
	if !given {
		space, name = corev1.NamespaceDefault, app
	}
	m, err := core.CoreV1().ConfigMaps(reasonsNamespace).Get(ctx, space+"."+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%s: no decision was made: expected an App, as NAMESPACE/NAME; "+
			"kubectl get apps -A lists them", app)
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("expected somebody with the role isolane:operator: %w", err)
	}
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, of := range slices.Sorted(maps.Keys(m.Data)) {
		text.WriteString(m.Data[of])
	}
	return text.String(), nil
}
