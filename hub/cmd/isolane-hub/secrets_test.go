package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/api"
)

// A word that is in all names of one tenant's things is nowhere in what another tenant can read at the hub,
// even if its own App finds no room beside the first one's, or a change of it does not.
func TestSecrets(t *testing.T) {
	f := newFleet(t)
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	agent := f.agent(t)
	const secret = "quetzal"
	if _, err := f.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"isolane:viewer", "isolane:tenant-admin"} {
		_, err := f.core.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "spy-" + role},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "spy"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	lane := func(share int) map[string]any {
		return map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": 1, "share": share}}}
	}
	f.make(t, "tenants", "Tenant", "", secret, map[string]any{"cpus": 50})
	f.make(t, "apps", "App", secret, secret+"-image", map[string]any{"lane": lane(4)["lane"], "image": "localhost/" + secret + ":1"})
	f.app(t, secret, secret+"-image", "Pending")
	f.make(t, "apps", "App", secret, secret, spec(1, lane(4)))
	f.app(t, secret, secret, "Running")
	f.make(t, "apps", "App", "default", "beside", spec(1, lane(4)))
	f.app(t, "default", "beside", "Running")
	f.make(t, "apps", "App", "default", "alone", spec(1, nil))
	f.app(t, "default", "alone", "Pending", "no host takes it")
	f.reads(t, secret)

	u, err := f.resource("apps", "default").Get(t.Context(), "beside", metav1.GetOptions{})
	if err == nil {
		u.Object["spec"].(map[string]any)["lane"] = map[string]any{"cpus": map[string]any{"count": int64(1)}}
		_, err = f.resource("apps", "default").Update(t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "beside", "Starting", "what ran before goes on: this host has no room for the lane as it is declared")
	f.reads(t, secret)
	for space, names := range map[string][]string{secret: {secret, secret + "-image"}, "default": {"alone", "beside"}} {
		for _, name := range names {
			if err = f.resource("apps", space).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			f.gone(t, name, func() error {
				_, gerr := f.resource("apps", space).Get(t.Context(), name, metav1.GetOptions{})
				return gerr
			})
		}
	}
	noLanes(t)
	f.end(t, agent, syscall.SIGTERM)
}

// reads makes a user with both roles of a tenant in namespace default list all kinds of resources everywhere.
func (f *fleet) reads(t *testing.T, secret string) {
	t.Helper()
	c := rest.CopyConfig(f.admin)
	c.Impersonate = rest.ImpersonationConfig{UserName: "spy"}
	core, client, err := clients(c)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := core.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for resource := range all {
		for _, space := range []string{"", "default", secret, api.Namespace("one"), "isolane-hub", "kube-system"} {
			found, lerr := client.Resource(resource).Namespace(space).List(t.Context(), metav1.ListOptions{})
			if lerr != nil {
				continue // it may not, or the resource has no namespace
			}
			text, merr := json.Marshal(found)
			if read++; merr != nil || strings.Contains(string(text), secret) {
				t.Errorf("%s in %q: %s, %v", resource.Resource, space, text, merr)
			}
		}
	}
	if read < 3 {
		t.Error(errors.Join(fmt.Errorf("it reads %d lists: expected apps, quotas and more of its own namespace", read), err))
	}
}
