#!/bin/sh
# Every greeting that is used is there, in the state of org/one that this change will land on.
while read -r name; do
    if [ -f "../one/greetings/$name" ]; then
        echo "ok      $name"
    else
        echo "broken  $name: org/one has no such greeting"
    fi
done <uses >test-report.txt
cat test-report.txt
exit "$(grep -c '^broken' test-report.txt)"
